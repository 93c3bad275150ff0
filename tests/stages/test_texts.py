"""Sentences and scored pairs as tables of a text-only run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from repair_ray.config import TextConfig, parse_section
from repair_ray.data.records import DataError
from repair_ray.run import Run, RunError
from repair_ray.stages.texts import ingest_pairs, ingest_texts, pairs_product
from repair_ray.training.texts.job import TEXTS


def made(folder: Path, **tree: Any) -> tuple[Run, list[dict[str, Any]]]:
    """The run, and the rows of its `texts` table in the order of the file."""
    config = parse_section(TextConfig, {"name": "run", "output": str(folder), **tree})
    run = Run(config.run_dir)
    ingest_texts(run, config)
    rows = run.read(TEXTS).to_pylist()
    return run, sorted(rows, key=lambda row: (row["source"], row["text"] or ""))


def test_bad_rows_stay_with_their_reason(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A red circle.\n\na red  circle\nTwo stars\n")
    run, rows = made(tmp_path, texts=str(tmp_path / "a.txt"))
    assert [(row["source"].rpartition(":")[2], row["status"], row["reason"]) for row in rows] == [
        ("1", "ok", None),
        ("2", "error", "no_text"),
        ("3", "ok", None),
        ("4", "ok", None),
    ]
    assert rows[0]["text_key"] == rows[2]["text_key"] != rows[3]["text_key"]
    assert len({row["group_id"] for row in rows}) == 4
    manifest = run.manifest(TEXTS)
    assert manifest is not None
    assert manifest["statuses"] == {"ok": 3, "error": 1} and manifest["reasons"] == {"no_text": 1}


def test_captions_of_one_picture_are_one_group(tmp_path: Path) -> None:
    for name in ("a.png", "b.png", "c.png"):
        (tmp_path / name).write_bytes(b"photo")
    frame = {"image": ["a.png", "b.png", "c.png"], "caption": [["one", "two"], ["three"], ["four"]]}
    pd.DataFrame({**frame, "split": ["train", "train", "test"]}).to_parquet(tmp_path / "pairs.parquet")
    _, rows = made(tmp_path, texts={"data": {"path": str(tmp_path / "pairs.parquet")}})
    groups = {row["text"]: row["group_id"] for row in rows}
    assert set(groups) == {"one", "two", "three"}  # the test split is not trained on
    assert groups["one"] == groups["two"] != groups["three"]


def test_limit_counts_usable_texts(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\ntwo\nthree\nfour\n")
    _, rows = made(tmp_path, texts={"path": str(tmp_path / "a.txt"), "limit": 3})
    assert [row["text"] for row in rows] == ["one", None, "two", "three"]


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n")
    made(tmp_path, texts=str(path))
    path.write_text("one\ntwo\nthree\n")
    with pytest.raises(RunError, match=r"files was .* Use --redo data/texts"):
        made(tmp_path, texts=str(path))


@pytest.mark.parametrize("text", ["", "\n\n", "one\n\n"])
def test_too_few_texts(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(DataError, match=r"holds [01] usable texts; at least two are needed"):
        made(tmp_path, texts=str(tmp_path / "a.txt"))


def test_pairs(tmp_path: Path) -> None:
    (tmp_path / "dev.csv").write_text("score,sentence1,sentence2\n1,a,b\nx,a,b\n2,c,d\n")
    tree = {"name": "run", "output": str(tmp_path), "texts": "a", "validation": str(tmp_path / "dev.csv")}
    config = parse_section(TextConfig, tree)
    run = Run(config.run_dir)
    ingest_pairs(run, config, "validation")
    ingest_pairs(run, config, "test")  # there is none
    rows = sorted(run.read(pairs_product("validation")).to_pylist(), key=lambda row: row["source"])
    assert [(row["first"], row["second"], row["score"], row["reason"]) for row in rows] == [
        ("a", "b", 1.0, None),
        (None, None, None, "bad_score"),
        ("c", "d", 2.0, None),
    ]
    assert run.manifest(pairs_product("test")) is None
    (tmp_path / "none.csv").write_text("score,sentence1,sentence2\nx,a,b\n")
    config = parse_section(TextConfig, {**tree, "test": str(tmp_path / "none.csv")})
    with pytest.raises(DataError, match=r"no pair of .*none.csv can be used: 1 bad_score \(the first: .*none.csv:2\)"):
        ingest_pairs(run, config, "test")
