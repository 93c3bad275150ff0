"""The figures that only the demo's world can give, on a round of six failures that is judged by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from repair_ray import tables
from repair_ray.data.store import ImageStore
from repair_ray.evaluation.truth import measure_truth, read_truth
from repair_ray.run import Recipe, Run
from repair_ray.world.render import png_bytes
from repair_ray.world.scene import Group, Scene

CIRCLE = Group("circle", "red", "small", "solid", 1, 0)
SQUARE = Group("square", "blue", "large", "solid", 1, 3)
BLUE_CIRCLE = Group("circle", "blue", "small", "solid", 1, 0)
SCENES = {
    "A": Scene((CIRCLE, SQUARE)),
    "B": Scene((BLUE_CIRCLE, SQUARE)),
    "edit-right": Scene((CIRCLE, SQUARE)),  # B with its circle red again: one change
    "edit-wrong": Scene((BLUE_CIRCLE,)),  # B without its square: one change, and not what was asked
}
CAPTIONS = {
    "a1": "a red circle",
    "a2": "a square",
    "b1": "a blue circle",
    "b2": "a small blue circle and a large square",
}

# Failure: direction, query, candidate; was it judged valid; its accepted edit, or None.
ROUND: dict[str, tuple[str, str, str, bool, str | None]] = {
    "f1": ("i2t", "A", "b1", True, "a red circle"),  # truly wrong, edited rightly, one word
    "f2": ("i2t", "A", "b2", True, "one green star"),  # truly wrong, edited wrongly, all eight words but one place
    "f3": ("i2t", "B", "a2", True, None),  # "a square" is true of B: judged wrongly
    "f4": ("t2i", "a1", "B", True, "edit-right"),
    "f5": ("t2i", "a1", "B", False, None),  # truly wrong and not judged so
    "f6": ("t2i", "a1", "B", True, "edit-wrong"),
}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path)
    for name, scene in SCENES.items():
        (tmp_path / f"{name}.png").write_bytes(png_bytes(scene))

    def commit(product: str, kind: tables.Table, rows: list[dict[str, Any]], **facts: Any) -> None:
        run.ready(product, Recipe({}))
        run.commit(product, Recipe({}), kind, tables.to_table(rows, kind.schema), 0.0, **facts)

    train = {"split": "train", "group_id": "g", "status": tables.OK}
    commit("data/images", tables.IMAGES, [{"image_id": n, "uri": f"{n}.png", **train} for n in ("A", "B")])
    texts = [
        {"caption_id": n, "image_id": n[0].upper(), "text": text, "text_key": text, "position": 0, **train}
        for n, text in CAPTIONS.items()
    ]
    commit("data/captions", tables.CAPTIONS, texts)
    failures, verdicts, edits = [], [], []
    for identity, (direction, query, candidate, valid, edit) in ROUND.items():
        pair = {"failure_id": identity, "direction": direction, "query_id": query, "candidate_id": candidate}
        failures.append({**pair, "status": tables.OK})
        verdicts.append({**pair, "status": tables.OK if valid else tables.REJECTED})
        made = {"text": edit} if direction == "i2t" else {"uri": f"{edit}.png"}
        status = tables.OK if edit else tables.REJECTED
        edits.append({**pair, "ground_truth_id": "x", "kind": "edited", "status": status, **made})
    paired = {"failure_id": "f0", "direction": "t2i", "query_id": "a1", "candidate_id": "B", "ground_truth_id": "A"}
    edits.append({**paired, "kind": "paired", "status": tables.OK})  # nothing was edited, nothing is measured
    failures.append({"failure_id": "none", "direction": "i2t", "query_id": "A", "status": tables.NO_FAILURE})
    # Other names than a round's own, as with random pairs in place of failures: the edits table says which it was.
    commit("round1/drawn", tables.FAILURES, failures)
    commit("round1/judged", tables.VERDICTS, verdicts)
    made_from = {"failures": "round1/drawn", "verdicts": "round1/judged"}
    commit("round1/edits", tables.EDITS, edits, made_from=made_from)
    return run


def test_figures_by_hand(run: Run) -> None:
    measure_truth(run, "round1", ImageStore(str(run.folder)))
    found = read_truth(run, "round1")
    # Judged valid: f1, f2, f3, f4, f6, of which f3 is not wrong. Truly wrong: all but f3, of which f5 was missed.
    assert found["audit_precision"] == found["audit_recall"] == 80.0
    assert found["edit_validity"] == {"i2t": 50.0, "t2i": 50.0}
    # f2 has 3 words where there were 8: eight changes at least. Edited pictures: one change each.
    assert found["minimality"] == {"i2t": 50.0, "t2i": 100.0}
    assert found["mean_changes"] == {"i2t": (1 + 8) / 2, "t2i": 1.0}
    measure_truth(run, "round1", ImageStore("/nowhere"))  # done once


def test_no_truth_where_none_was_measured(run: Run) -> None:
    assert read_truth(run, "round1") == {}
