"""What tests of pages in a browser share."""

from __future__ import annotations

from typing import Any

import pytest


def violations(page: Any) -> list[str]:
    """What axe finds wrong with a page: names, contrast, structure."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    found = axe.Axe().run(page).response
    return [f"{rule['id']}: {node['html'][:200]}" for rule in found["violations"] for node in rule["nodes"]]
