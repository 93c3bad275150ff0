"""Formulas by hand, inputs from rows, and a page that is what its inputs make it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from benchmarks.sizing import (
    INPUTS,
    PAGE,
    Size,
    SizingError,
    Use,
    audit,
    counted,
    edit,
    embed,
    estimate,
    mine_cores,
    mine_gpus,
    mine_ivf,
    money,
    read_inputs,
    seconds,
    train,
)
from benchmarks.sizing_page import page

SIZE = Size("s", images=1000, captions=5, failures=600, epochs=2, gpus=4)
X = {
    "images": 100.0,
    "texts": 500.0,
    "embed": 0.5,
    "decode": 50.0,
    "width": 10.0,
    "search_core": 1e6,
    "search_gpu": 1e9,
    "ivf": 0.1,
    "audit_in": 100.0,
    "tokens_in": 1000.0,
    "audit_out": 20.0,
    "tokens_out": 100.0,
    "language": 0.75,
    "valid": 0.5,
    "candidates": 3.0,
    "edit": 0.8,
    "editing": 0.8,
    "streaming": 0.5,
    "picture_kb": 50.0,
    "kept": 0.5,
    "train": 30.0,
    "training": 0.5,
    "gpu_hour": 2.0,
    "core_hour": 0.5,
    "gb_month": 0.1,
    "months": 3.0,
    "cores_per_gpu": 2.0,
    "scale": 0.8,
    "start": 7.0,
}


def test_each_stage_by_hand() -> None:
    # 1,000 / 100 + 5,000 / 500 = 20 s, twice as long at half the speed; 6,000 vectors of 40 bytes.
    assert embed(SIZE, X) == Use(gpu=40.0, core=20.0, gb=6000 * 40 / 1e9)
    # Two directions of 1,000 x 5,000 products of 10 multiplications and 10 additions: 2e8 FLOP.
    assert mine_cores(SIZE, X) == Use(core=200.0)
    assert mine_gpus(SIZE, X) == Use(gpu=0.2)
    assert mine_ivf(SIZE, X).core == pytest.approx(20.0)
    # 600 x (0.1 + 0.2) / 0.75
    assert audit(SIZE, X).gpu == pytest.approx(240.0)
    # 300 of a direction, 150 of them valid, 3 candidates: 450 edits of 0.8 s at 0.4 of the speed.
    assert edit(SIZE, X).gpu == pytest.approx(900.0) and edit(SIZE, X).gb == pytest.approx(450 * 50e3 / 1e9)
    # 150 corrected pairs on 1,000 anchors: 2 x 1,000 x 1.3 pairs at 15 a second.
    assert train(SIZE, X).gpu == pytest.approx(2600 / 15)


def test_an_anchor_has_two_corrected_pairs_at_most() -> None:
    many = Size("s", images=100, captions=5, failures=6000, epochs=1, gpus=1)
    assert train(many, X).gpu == pytest.approx(300 / 15)


def test_money_and_time_by_hand() -> None:
    use = Use(gpu=7200.0, core=3600.0, gb=10.0)
    assert money(use, X) == pytest.approx(2 * 2.0 + 0.5 + 10 * 0.1 * 3)
    # GPUs: 1,800 s each. Cores: 450 s each. At 0.8 of the speed.
    assert seconds(use, SIZE, X) == pytest.approx(1800 / 0.8 + 7)
    assert seconds(Use(core=36000.0), SIZE, X) == pytest.approx(4500 / 0.8 + 7)


def test_the_cheaper_exact_way_to_mine_counts() -> None:
    assert [name for name in counted(_estimate(), X) if name.startswith("mine")] == ["mine, exact, on GPUs"]
    dear = {**X, "gpu_hour": 1e6}
    assert [name for name in counted(_estimate(), dear) if name.startswith("mine")] == ["mine, exact, on cores"]


def _estimate() -> dict[str, Use]:
    more = {"ingest": 100.0, "instruct_in": 1.0, "instruct_out": 1.0}
    return estimate(SIZE, {**X, **more})


def test_a_measured_row_takes_the_place_of_an_assumption(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    before, _ = read_inputs(INPUTS, results)
    assert before["embed"].value == 0.95 and "until row `embed ViT-B-32` is measured" in before["embed"].source
    rows = [{"name": "embed ViT-B-32", "ratio": 1.2}, {"name": "search 20,000 x 20,000 x 512", "ours": 1000}]
    (results / "throughput.json").write_text(json.dumps(rows))
    after, _ = read_inputs(INPUTS, results)
    assert after["embed"].value == 1.0, "a share is no more than all"
    assert after["embed"].source == "row `embed ViT-B-32`"
    assert after["search_core"].value == pytest.approx(1000 * 2 * 20_000 * 512 / 2)


@pytest.mark.parametrize(
    ("section", "name", "given", "told"),
    [
        ("prices", "gpu_hour", {"value": -1, "unit": "$", "why": ""}, r"prices\.gpu_hour\.value=-1 must be above 0"),
        (
            "prices",
            "gpu_hour",
            {"value": "dear", "unit": "$", "why": ""},
            r"prices\.gpu_hour takes value, unit and why",
        ),
        ("prices", "gpu_hour", 3, r"prices\.gpu_hour takes value, unit and why"),
        ("workload", "gpu_hour", {"value": 1, "unit": "$", "why": ""}, r"workload\.gpu_hour stands in another section"),
    ],
)
def test_bad_inputs_are_named(tmp_path: Path, section: str, name: str, given: object, told: str) -> None:
    tree = yaml.safe_load(INPUTS.read_text())
    tree[section][name] = given
    (tmp_path / "inputs.yaml").write_text(yaml.safe_dump(tree))
    with pytest.raises(SizingError, match=told):
        read_inputs(tmp_path / "inputs.yaml")


def test_a_size_without_a_number_is_named(tmp_path: Path) -> None:
    tree = yaml.safe_load(INPUTS.read_text())
    del tree["sizes"][0]["epochs"]
    (tmp_path / "inputs.yaml").write_text(yaml.safe_dump(tree))
    with pytest.raises(SizingError, match="sizes: each takes name, images, captions, failures, epochs, gpus"):
        read_inputs(tmp_path / "inputs.yaml")


def test_the_page_is_what_its_inputs_make_it() -> None:
    made = page(*read_inputs(INPUTS))
    assert PAGE.read_text(encoding="utf-8") == made, "stale: python -m benchmarks.sizing --write"
    assert re.search(r"^\| 1B \| 10,000,000 \| 256 \|", made, re.MULTILINE)
