from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner

from repair_ray.cli import app
from repair_ray.data.inspect import inspect
from repair_ray.data.records import DataError

SAMPLE = Path(__file__).parents[1] / "fixtures/emoji/sample.parquet"


def folder(path: Path, captions: dict[str, str]) -> str:
    for name, text in captions.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4 + len(text), 3)).save(path / name)
        (path / name).with_suffix(".txt").write_text(text)
    return str(path)


def command(*arguments: str) -> tuple[int, str, str]:
    ended = CliRunner().invoke(app, ["data", "inspect", *arguments], env={"COLUMNS": "200"})
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended.exit_code, ended.stdout, ended.stderr


def test_facts_counted_by_hand(tmp_path: Path) -> None:
    path = folder(tmp_path, {"train/a.png": "1\n2\n3", "train/b.png": "1", "test/c.png": "1\n2", "test/d.png": ""})
    (tmp_path / "test/c.png").write_bytes(b"<html>")
    facts = inspect(path)
    assert facts["format"] == "image_folder" and facts["files"] == 8
    assert (facts["rows"], facts["captions"], facts["splits"]) == (3, 6, {"train": 2, "test": 1})
    assert facts["captions_a_picture"] == {"min": 1, "mean": 2.0, "max": 3}
    assert facts["examples"][0] == {"image_id": "test/c.png", "split": "test", "captions": ["1", "2"]}
    assert [(p["reason"], p["count"], p["first"]["source"]) for p in facts["problems"]] == [
        ("no_caption", 1, f"{path}/test/d.png:0")
    ]
    pictures = facts["pictures"]
    assert (pictures["opened"], pictures["usable"]) == (3, 2)
    assert (pictures["width"], pictures["height"]) == ({"min": 5, "max": 9}, {"min": 3, "max": 3})
    assert [(p["reason"], p["first"]["source"]) for p in pictures["problems"]] == [("html", f"{path}/test/c.png:0")]
    assert facts["complete"] and facts["error"] is None
    assert json.loads(json.dumps(facts)) == facts


def test_only_the_first_rows_and_pictures(tmp_path: Path) -> None:
    facts = inspect(str(SAMPLE), limit=10, pictures=4)
    assert (facts["rows"], facts["pictures"]["opened"], facts["complete"], facts["error"]) == (10, 4, False, None)
    assert inspect(str(SAMPLE), limit=61, pictures=0)["complete"]
    # A picture that is opened but unusable is not the same as a row without captions.
    path = folder(tmp_path, {"a.png": "", "b.png": "x"})
    assert inspect(path, limit=1)["error"] == f"none of the first 1 rows of {path} (image_folder) is usable"
    (tmp_path / "b.png").write_bytes(b"")
    assert "none of the 1 pictures opened is usable" in inspect(path)["error"]


def test_what_ended_the_reading_is_told_with_what_came_before(tmp_path: Path) -> None:
    shutil.copy(SAMPLE, tmp_path / "1.parquet")
    second = tmp_path / "2.parquet"
    table = pa.table({"image": pa.array([b"x" * 1000] * 4), "captions": [["y"]] * 4, "image_id": list("abcd")})
    pq.write_table(table, second, row_group_size=1, compression=None, use_dictionary=False)
    raw = bytearray(second.read_bytes())
    place = pq.read_metadata(second).row_group(2).column(0).data_page_offset
    raw[place : place + 20] = b"\xff" * 20
    second.write_bytes(raw)
    facts = inspect(str(tmp_path), pictures=0)
    assert facts["rows"] >= 60 and "2.parquet is damaged" in facts["error"]
    with pytest.raises(DataError, match="no such file"):
        inspect(str(tmp_path / "absent"))


def test_the_command_shows_captions_as_they_are(tmp_path: Path) -> None:
    path = folder(tmp_path / "[red]data", {"train/a.png": "a [bold]dog[/bold] \x1b[2J\n" + "\n".join("bcdefg")})
    code, shown, _ = command(path, "--json", str(tmp_path / "facts.json"))
    assert code == 0
    for expected in (
        "image_folder",
        "train 1",
        "a [bold]dog[/bold] ·[2J",
        "and 2 more",
        "7 to 7, mean 7.00",
        "[red]data",
    ):
        assert expected in shown, expected
    written: dict[str, Any] = json.loads((tmp_path / "facts.json").read_text())
    assert written["rows"] == 1 and written["path"] == path


def test_the_command_fails_where_nothing_is_usable(tmp_path: Path) -> None:
    path = folder(tmp_path, {"a.png": "", "b.png": " "})
    code, shown, told = command(path, "--json", str(tmp_path / "facts.json"))
    assert code == 2 and "2 no_caption" in told and told.startswith("error: ")
    assert "Rows that cannot be used" in shown and (tmp_path / "facts.json").exists()
    assert command(str(tmp_path / "absent"))[0] == 2
    code, _, told = command(str(SAMPLE), "--caption-column", "words")
    assert code == 2 and "data.caption_column 'words' matches no column" in told
    assert "unknown data.format" in command(str(SAMPLE), "--format", "nothing")[2]
