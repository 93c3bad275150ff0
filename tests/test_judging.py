"""`repair-ray evaluate` on a run directory of a few rows: figures by hand, blind sheets, and errors of one line."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from repair_ray import tables
from repair_ray.cli import app
from repair_ray.config import parse_config
from repair_ray.run import Recipe, Run, write_json
from tests.test_cli import refuse

# Failure: direction, the judge's word, its confidence.
JUDGED: dict[str, tuple[str, str | None, float | None]] = {
    "f1": ("i2t", "valid", 0.9),
    "f2": ("i2t", "valid", 0.6),
    "f3": ("i2t", "benign_match", 0.9),
    "f4": ("t2i", "unsure", 0.5),
    "f5": ("t2i", None, None),
    "f6": ("t2i", "valid", 0.9),
}
CONFIG = {"data": {"train": "x.parquet"}, "output": ".", "name": "made"}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Two pictures, one of them inside a shard, with a caption each; more failures than anybody would mine there."""
    monkeypatch.chdir(tmp_path)
    made = Run("made")
    made.folder.mkdir()
    write_json(made.folder / "config.json", parse_config(CONFIG).model_dump(mode="json"))
    Image.new("RGB", (4, 4), "red").save(tmp_path / "a.png")
    data = (tmp_path / "a.png").read_bytes()
    (made.folder / "shard.tar").write_bytes(b"before" + data + b"after")
    train = {"split": "train", "status": tables.OK, "pixel_hash": "0123456789abcdef0"}
    images = [
        {"image_id": "A", "group_id": "A", "uri": str(tmp_path / "a.png"), **train},
        {"image_id": "B", "group_id": "B", "uri": "shard.tar", "offset": 6, "length": len(data), **train},
    ]
    captions = [
        {"caption_id": f"{i}1", "image_id": i, "group_id": i, "text": text, "text_key": text, "position": 0, **train}
        for i, text in (("A", "=a red square"), ("B", "a blue square"))
    ]
    failures, verdicts = [], []
    for identity, (direction, judgement, confidence) in JUDGED.items():
        query, candidate = ("A", "B1") if direction == "i2t" else ("A1", "B")
        row = {"failure_id": identity, "direction": direction, "query_id": query, "candidate_id": candidate}
        failures.append({**row, "score": 0.25, "status": tables.OK})
        status = tables.OK if judgement == "valid" else tables.REJECTED if judgement else tables.ERROR
        explanation = {"judge": "heuristic", "explanation": "the captions deny it"}
        verdicts.append({**row, "judgement": judgement, "confidence": confidence, "status": status, **explanation})
    commit(made, "data/images", tables.IMAGES, images)
    commit(made, "data/captions", tables.CAPTIONS, captions)
    commit(made, "round-1/failures", tables.FAILURES, failures)
    commit(made, "round-1/verdicts", tables.VERDICTS, verdicts)
    return made


def commit(run: Run, product: str, kind: tables.Table, rows: list[dict[str, Any]], **facts: Any) -> None:
    run.ready(product, Recipe({}))
    run.commit(product, Recipe({}), kind, tables.to_table(rows, kind.schema), 0.0, **facts)


def evaluate(*arguments: str) -> str:
    ended = CliRunner().invoke(app, ["evaluate", *arguments])
    assert ended.exit_code == 0, ended.output
    return " ".join(ended.stdout.split())


def figures() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path("out.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    return found


def test_audit_by_two_annotators(run: Run) -> None:
    Path("ann.csv").write_text(
        "failure_id,label\nf1,valid\nf2,valid\nf3,benign_match\nf5,valid\nf6,bad_ground_truth\nzz,valid\nf4,\n"
    )
    Path("bob.csv").write_text("failure_id,label\nf1,valid\nf2,benign_match\nf6,bad_ground_truth\n")
    shown = evaluate("audit", "made", "ann.csv", "bob.csv", "--json", "out.json")
    found = figures()
    assert (found["labelled"], found["joined"], found["unmatched"]) == (6, 5, {"n": 1, "such_as": ["zz"]})
    assert (found["disputed"], found["unlabelled_rows"], found["annotators"]) == (1, 1, {"ann": 6, "bob": 3})
    # f2 is disputed. Judged valid: f1, f6, of which f1 is. Valid to people: f1, f5, of which f1 was judged so.
    assert found["total"]["n"] == 4
    assert (found["total"]["precision"]["hits"], found["total"]["precision"]["of"]) == (1, 2)
    assert (found["total"]["recall"]["hits"], found["total"]["recall"]["of"]) == (1, 2)
    assert found["total"]["no_verdict"] == 1
    # i2t: f1 and f3, both equal, of two classes. t2i: f6 alone has a verdict; chance would never agree either.
    assert found["i2t"]["agreement"]["kappa"] == 1.0 and found["t2i"]["agreement"]["kappa"] == 0.0
    (pair,) = found["between_annotators"]
    # f1, f2, f6: two equal. By chance, of 9: valid 2 * 1, bad_ground_truth 1 * 1. Kappa: (6 - 3) / (9 - 3).
    assert (pair["n"], pair["equal"]["hits"], pair["kappa"]) == (3, 2, 0.5)
    assert [(b["low"], b["n"]) for b in found["confidence"]] == [(0.9, 3)]
    assert "such as zz 1" in shown and "annotators disagree 1" in shown and "50.0 % of 2" in shown


def test_one_class_has_no_kappa(run: Run) -> None:
    Path("ann.csv").write_text("failure_id,label\nf1,valid\nf2,valid\n")
    assert "kappa undefined undefined" in evaluate("audit", "made", "ann.csv", "--json", "out.json")
    assert figures()["total"]["agreement"]["kappa"] is None


def test_verdicts_that_the_edits_were_made_from(run: Run) -> None:
    """A strategy of its own failures names them in its edits."""
    commit(run, "round-1/random_failures", tables.FAILURES, [])
    other = {"failure_id": "r1", "direction": "i2t", "judgement": "valid", "status": tables.OK}
    commit(run, "round-1/random_verdicts", tables.VERDICTS, [other])
    made_from = {"failures": "round-1/random_failures", "verdicts": "round-1/random_verdicts"}
    commit(run, "round-1/edits", tables.EDITS, [], made_from=made_from)
    Path("ann.csv").write_text("failure_id,label\nr1,valid\n")
    assert "round-1/random_verdicts" in evaluate("audit", "made", "ann.csv")


def test_a_sheet_shows_everything_but_the_verdict(run: Run) -> None:
    evaluate("sheet", "made", "to_label.csv", "--n", "100")
    text = Path("to_label.csv").read_text(encoding="utf-8-sig")
    for word in ("unsure", "benign", "valid", "heuristic", "deny", "0.9", "0.25", "rejected"):
        assert word not in text
    with Path("to_label.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = {row["failure_id"]: row for row in csv.DictReader(file)}
    assert rows.keys() == JUDGED.keys()
    i2t, t2i = rows["f1"], rows["f4"]
    assert (i2t["query_text"], i2t["candidate_text"], t2i["query_text"]) == ("", "a blue square", "'=a red square")
    assert i2t["query_captions"] == "'=a red square" and i2t["query_image"] == str(Path("a.png").absolute())
    assert i2t["candidate_image"] == "to_label_images/0123456789abcdef.jpg"
    with Image.open(i2t["candidate_image"]) as picture:
        assert picture.size == (4, 4) and picture.getpixel((1, 1))[0] > 200
    evaluate("sheet", "made", "again.csv", "--n", "3")
    evaluate("sheet", "made", "same.csv", "--n", "3")
    assert len(Path("again.csv").read_text().splitlines()) == 4
    assert Path("again.csv").read_text() == Path("same.csv").read_text().replace("same_images", "again_images")
    assert "to_label.csv exists, and may hold labels" in refuse("evaluate", "sheet", "made", "to_label.csv")


def test_blind_reads_accepted_edited_captions(run: Run) -> None:
    ids = [f"q{n}" for n in range(120)]
    train = {"split": "train", "status": tables.OK}
    images = [{"image_id": i, "group_id": i, **train} for i in ids]
    texts = {i: f"{['red', 'blue', 'green'][n % 3]} thing {n % 7}" for n, i in enumerate(ids)}
    captions = [
        {"caption_id": f"{i}c", "image_id": i, "group_id": i, "text": t, "text_key": t, "position": 0, **train}
        for i, t in texts.items()
    ]
    edits = [
        {
            "failure_id": i,
            "direction": "i2t",
            "query_id": i,
            "candidate_id": f"{ids[n - 60]}c",
            "ground_truth_id": "x",
            "kind": "edited",
            "text": f"{texts[i]} truly",
            "status": tables.OK,
        }
        for n, i in enumerate(ids[:60])
    ]
    left_out = {"status": tables.REJECTED}, {"kind": "paired", "text": None}, {"direction": "t2i", "text": None}
    edits += [{**edits[0], "failure_id": f"x{n}", **changed} for n, changed in enumerate(left_out)]
    for product in ("data/images", "data/captions"):
        run.redo(product)
    commit(run, "data/images", tables.IMAGES, images)
    commit(run, "data/captions", tables.CAPTIONS, captions)
    commit(run, "round-1/edits", tables.EDITS, edits)
    assert "truly" in evaluate("blind", "made", "--json", "out.json")
    found = figures()
    assert (found["pairs"], found["accuracy"]["hits"], found["more_words"]) == (60, 60, 1.0)
    run.redo("edits")
    commit(run, "round-1/edits", tables.EDITS, edits[:49] + edits[60:])
    assert "49 pairs are too few" in refuse("evaluate", "blind", "made")


def test_rules_have_no_order(run: Run) -> None:
    Path("c.yaml").write_text(json.dumps(CONFIG))
    assert "nothing was asked: the heuristic backend" in evaluate("consistency", "c.yaml", "--json", "out.json")
    assert figures().keys() == {"skipped"}


def test_errors(run: Run) -> None:
    Path("ann.csv").write_text("failure_id,label\nother1,valid\n")
    line = refuse("evaluate", "audit", "made", "ann.csv")
    assert "none of the 1 labelled failures is in round-1/verdicts" in line and "'other1'" in line and "'f1'" in line
    assert "there is no labels file at none.csv" in refuse("evaluate", "audit", "made", "none.csv")
    assert "row 2: unknown label" in refuse("evaluate", "audit", "made", wrong_label())
    assert "there is no run at" in refuse("evaluate", "audit", "nowhere", "ann.csv")
    assert "there is no run at" in refuse("evaluate", "sheet", "nowhere", "s.csv")
    assert not Path("nowhere").exists() and not Path("s.csv").exists()
    assert "round-2/verdicts does not exist yet" in refuse("evaluate", "sheet", "made", "s.csv", "--round", "2")
    assert "round-1/edits does not exist yet" in refuse("evaluate", "blind", "made")
    Path("c.yaml").write_text(json.dumps({**CONFIG, "name": "other"}))
    assert "there is no run at" in refuse("evaluate", "consistency", "c.yaml")
    assert "no config file" in refuse("evaluate", "consistency", "no.yaml")


def wrong_label() -> str:
    Path("wrong.csv").write_text("failure_id,label\nf1,false_negative\n")
    return "wrong.csv"
