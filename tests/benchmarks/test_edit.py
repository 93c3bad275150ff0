"""What the editing benchmark holds against each other, and what it says where diffusers is not installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import edit
from benchmarks.rows import Skipped
from benchmarks.turns import Settings


def test_another_picture_is_told_and_jpeg_is_not() -> None:
    made = np.random.default_rng(0).integers(20, 230, (8, 8, 3)).astype(np.uint8)
    edit.check({"a": made + np.uint8(10)}, {"a": made})
    with pytest.raises(AssertionError, match=r"b is another picture: 20\.0 of 255"):
        edit.check({"a": made, "b": made + np.uint8(20)}, {"a": made, "b": made})
    with pytest.raises(AssertionError):
        edit.check({"a": made}, {"a": made, "b": made})


def test_without_diffusers_it_is_skipped_and_says_where_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edit, "find_spec", lambda name: None)
    with pytest.raises(Skipped, match="diffusers is not installed; run it in an environment of requirements-models"):
        next(edit.rows(Settings(True, tmp_path)))
