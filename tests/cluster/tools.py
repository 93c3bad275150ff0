"""Linters that are programs of their own, from the packages of requirements-dev.txt."""

from __future__ import annotations

import shutil
import sysconfig

import pytest


def tool(name: str) -> str:
    """The path of a linter; skips where it is absent."""
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is absent (see requirements-dev.txt)")
    return found
