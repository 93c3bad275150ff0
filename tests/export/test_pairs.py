"""What stands on both sides of a pair, and what is told of it."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from repair_ray.export.pairs import hard_pairs
from repair_ray.run import RunError
from tests.export.made_run import EDITS, make_run


def test_both_sides_of_each_kind(tmp_path: Path) -> None:
    pairs = {pair.pair_id: pair for pair in hard_pairs(*make_run(tmp_path), "round-1")}
    sides = {
        name: (p.image.image_id, p.caption.text, p.neg_image.image_id, p.neg_caption and p.neg_caption.text)
        for name, p in pairs.items()
    }
    assert sides == {
        "f1": ("A", "a red\tdot, not green", "B", "a green dot"),
        # "big green" is what the audit found wrong: B2 says more of it than B1.
        "f2": ("edit-f2", "a red dot", "B", "big green dot"),
        # C's only caption is the query's own text.
        "f3": ("edit-f3", "a red dot", "C", None),
        "f4": ("B", "a green dot", "A", "a red dot"),
    }
    assert pairs["f1"].anchor == "one dot, in red"
    assert [(p.image.synthetic, p.caption.synthetic) for p in pairs.values()] == [
        (False, True),
        (True, False),
        (True, False),
        (False, False),
    ]


def test_provenance_of_each_edit(tmp_path: Path) -> None:
    told = {pair.pair_id: pair.record() for pair in hard_pairs(*make_run(tmp_path), "round-1")}
    caption, picture, paired = told["f1"], told["f2"], told["f4"]
    assert (caption["editor"], caption["model"], caption["seed"]) == ("openai", "judge-7b", 5)
    assert (picture["editor"], picture["model"]) == ("flux2-klein", "black-forest-labs/FLUX.2-klein-4B")
    assert picture["instructed_by"] == "judge-7b"
    # The picture of f2 is its second candidate.
    digest = hashlib.sha256(b"3\x1ff2\x1f1").hexdigest()[:16]
    assert picture["seed"] == int(digest, 16) % 2**31
    assert all(re.fullmatch("[0-9a-f]{8}", told[name]["prompt_version"]) for name in ("f1", "f2"))
    assert caption["prompt_version"] != picture["prompt_version"]
    assert caption["digital_source_type"].endswith("/compositeWithTrainedAlgorithmicMedia")
    assert {paired[name] for name in ("editor", "model", "seed", "digital_source_type", "tool")} == {None}
    assert (caption["judge"], caption["confidence"], caption["score"], caption["align"]) == ("judge-7b", 0.75, 0.5, 0.5)
    assert (caption["ground_truth_id"], caption["group_id"], picture["group_id"]) == ("A2", "gA", "gA")
    # No folder of the machine that made it.
    assert (caption["source"], picture["source"]) == ("x.parquet:0", None)


def test_nothing_accepted_says_why(tmp_path: Path) -> None:
    run, config = make_run(tmp_path, {"f5": EDITS["f5"]})
    with pytest.raises(RunError, match=r"none of 1 edits was accepted \(1 x too far\)"):
        hard_pairs(run, config, "round-1")
    with pytest.raises(RunError, match="round-2/edits does not exist yet"):
        hard_pairs(run, config, "round-2")
