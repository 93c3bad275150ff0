"""The stress test by hand: ties, features that are not finite, intervals over items, files, and circular oracles."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from repair_ray.data.records import DataError
from repair_ray.engines.words import Key, language
from repair_ray.evaluation.stress import (
    Captioned,
    StressItem,
    StressSet,
    ask,
    build,
    circular,
    load,
    save,
    stress_metrics,
    stress_ranks,
)

ALIKE: dict[Key, list[Key]] = {("cat", "noun"): [("dog", "noun"), ("owl", "noun")]}


def unit(*rows: tuple[float, float]) -> np.ndarray:
    made = np.array(rows, np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def test_ranks_by_hand() -> None:
    items = unit((1, 0), (0, 1), (1, 1))
    captions = unit((1, 0.1), (1, 0), (1, 1))
    # The first caption is above its one negative; the second below both of its; the third beats one and ties with one.
    negatives = unit((1, 0.5), (0, 1), (1, 1), (1, 0), (2, 2))
    owners = np.array([0, 1, 1, 2, 2])
    assert stress_ranks(items, captions, negatives, owners).tolist() == [1, 3, 2]


def test_a_tie_is_wrong_and_so_is_what_is_not_finite() -> None:
    one = unit((1, 0))
    assert stress_ranks(one, one, one, np.array([0])).tolist() == [2]
    nearly = np.array([[1 - 5e-7, 0]], np.float32)
    assert stress_ranks(one, one, nearly, np.array([0])).tolist() == [2], "but for the rounding of a product"
    nan = np.array([[np.nan, 0]], np.float32)
    assert stress_ranks(one, nan, unit((0, 1)), np.array([0])).tolist() == [2]
    assert stress_ranks(one, one, nan, np.array([0])).tolist() == [2]


def test_constant_features_score_nothing() -> None:
    same = unit(*[(1.0, 1.0)] * 4)
    ranks = stress_ranks(same, same, np.repeat(same, 3, axis=0), np.repeat(np.arange(4), 3))
    assert ranks.tolist() == [4] * 4


def test_figures_by_hand() -> None:
    found = stress_metrics(np.array([1, 2, 4, 1]), ["a", "a", "b", "c"], np.array([2, 2, 5, 5]))
    assert found["r@1"] == 50 and found["mrr"] == round(100 * (1 + 0.5 + 0.25 + 1) / 4, 3)
    assert found["chance"] == 35 and found["n"] == 4 and found["items"] == 3
    assert found["r@1_ci"][0] < 50 < found["r@1_ci"][1]
    assert found == stress_metrics(np.array([1, 2, 4, 1]), ["a", "a", "b", "c"], np.array([2, 2, 5, 5]))


def test_questions_are_asked_of_items_that_are_there() -> None:
    vectors = {"A cat.": (1, 0), "a cat": (1, 1), "A dog.": (0, 1), "An owl.": (0.9, 0.1), "a dog": (1, 1)}

    def encode(texts: list[str]) -> np.ndarray:
        return unit(*[vectors[text] for text in texts])

    features = unit((0, 1), (1, 0.02))
    found = ask(made(), {"i0": 1, "elsewhere": 0}, features, encode)
    assert found["n"] == 1 and found["r@1"] == 100 and found["chance"] == round(100 / 3, 3)
    both = ask(made(), {"i0": 1, "i1": 0}, features, encode)
    assert both["n"] == 2 and both["r@1"] == 50, "a dog is where a cat is: a tie"
    with pytest.raises(ValueError, match="no question"):
        ask(made(), {"elsewhere": 0}, features, encode)


def test_the_interval_resamples_items() -> None:
    """Ten questions of each of forty items, all right or all wrong: as wide as that of forty questions."""
    right = np.arange(40) % 2
    ranks = np.repeat(2 - right, 10)
    wide = stress_metrics(ranks, [str(n) for n in range(40) for _ in range(10)], np.full(400, 2))["r@1_ci"]
    narrow = stress_metrics(ranks, [str(n) for n in range(400)], np.full(400, 2))["r@1_ci"]
    plain = np.random.default_rng(0).choice(right, (20000, 40)).mean(axis=1)
    assert wide == pytest.approx((100 * np.percentile(plain, [2.5, 97.5])).tolist(), abs=3)
    assert wide[1] - wide[0] > 2 * (narrow[1] - narrow[0])
    assert stress_metrics(np.ones(3, int), ["a", "b", "c"], np.full(3, 2))["r@1_ci"] == [100, 100]
    with pytest.raises(ValueError, match="no question"):
        stress_metrics(np.zeros(0, int), [], np.zeros(0, int))


def made() -> StressSet:
    captioned = [
        Captioned("i0", [("c0", "A cat."), ("c1", "nothing here")]),
        Captioned("i1", [("c2", "a cat"), ("c3", "it is")], ["an owl"]),
    ]
    items, left_out = build(captioned, language("en"), ALIKE, {}, n_hard=4, n_swap=1, seed=0)
    return StressSet(items, {"kind": "list", "digest": "x"}, {"seed": 0}, left_out)


def test_questions_are_built_of_captions_that_have_a_substitution() -> None:
    found = made()
    assert [(item.item, item.caption_id, set(item.negatives)) for item in found.items] == [
        ("i0", "c0", {"A dog.", "An owl."}),
        ("i1", "c2", {"a dog"}),
    ]
    assert sum(found.left_out.values()) == 2 and "the caption has no content word" in found.left_out


def test_a_stress_set_is_kept_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "set.jsonl"
    odd = StressItem("i9", "c9", "Grüße “\u2028” 😀", ("a\\b", "\u0085"))
    found = StressSet([*made().items, odd], made().oracle, made().settings, made().left_out)
    save(file, found)
    assert load(file) == found and load(file).digest() == found.digest() != made().digest()
    assert len(file.read_text(encoding="utf-8").split("\n")) == 1 + 3 + 1
    assert not list(tmp_path.glob(".*")), "no half-written file is left"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "is no stress set"),
        (['{"item": 1}'], "is no stress set"),
        (["HEAD"], "holds no question"),
        (["HEAD", "{"], "line 2 is not JSON"),
        (["HEAD", '{"item": "i", "caption_id": "c", "caption": "", "negatives": ["x"]}'], "line 2: item, caption_id"),
        (["HEAD", '{"item": "i", "caption_id": "c", "caption": "t", "negatives": []}'], "line 2: negatives is no list"),
    ],
)
def test_files_that_are_no_stress_set(tmp_path: Path, lines: list[str], message: str) -> None:
    head = json.dumps({"format": "repair_ray stress set 1", "oracle": {}})
    (tmp_path / "s").write_text("\n".join(lines).replace("HEAD", head))
    with pytest.raises(DataError, match=message):
        load(tmp_path / "s")
    with pytest.raises(DataError, match="cannot read"):
        load(tmp_path / "absent")


def test_an_oracle_that_made_the_negatives_is_circular() -> None:
    visual = {"kind": "visual", "model": "m", "weights": "w", "precision": "fp32"}
    listed = {"kind": "list", "digest": "d"}
    miners = [("the miner", visual), ("the list", listed)]
    assert circular({**visual, "precision": "bf16"}, miners) == "circular: the oracle is the miner"
    assert circular({**listed, "path": "elsewhere.csv"}, miners) == "circular: the oracle is the list"
    assert circular({**visual, "weights": "other"}, miners) is None
    assert circular({**visual, "kind": "text"}, miners) is None
    assert circular({"kind": "list", "digest": "e"}, miners) is None
    assert circular({}, [("nothing", {})]) is None
