"""Queries of attribute combinations and of captions: which, how many, and the same for a seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from repair_ray import tables
from repair_ray.config import Config, parse_config
from repair_ray.data.text import text_key
from repair_ray.multimatch.products import ATTRIBUTES, QUERIES
from repair_ray.multimatch.queries import facts_of, make_queries
from repair_ray.run import Run, RunError
from repair_ray.stages.graph import quiet
from tests.multimatch.conftest import commit, settings

# Ten pictures; two share a group, so that a caption of one is true of the other.
CAPTIONS = [["a red circle"]] * 4 + [["a blue circle"]] * 3 + [["two red squares"], ["Two red squares."], ["a dog"]]
GROUPS = [*range(8), 8, 7]


def run_of(folder: Path, queries: dict[str, Any], *, seed: int = 0, **more: Any) -> tuple[Run, Config]:
    tree = settings(folder, queries=queries, verify={"by": ["language"]}, **more) | {"seed": seed}
    config = parse_config(tree)
    run = Run(folder / "run")
    images = [
        {"image_id": f"i{n}", "group_id": f"g{GROUPS[n]}", "split": "test", "status": tables.OK} for n in range(10)
    ]
    captions = [
        {
            **images[n],
            "caption_id": f"c{n}-{place}",
            "position": place,
            "text": text,
            "text_key": text_key(text),
        }
        for n, texts in enumerate(CAPTIONS)
        for place, text in enumerate(texts)
    ]
    other = {"image_id": "other", "group_id": "other", "split": "train", "status": tables.OK}
    commit(run, "data/images", tables.IMAGES, [*images, other])
    text = {"caption_id": "c", "position": 0, "text": "a zebra", "text_key": text_key("a zebra")}
    commit(run, "data/captions", tables.CAPTIONS, [*captions, {**other, **text}])
    return run, config


def texts(run: Run) -> dict[str, float]:
    return {row["text"]: round(row["expected"], 4) for row in run.read(QUERIES).to_pylist()}


def test_templates_by_hand(tmp_path: Path) -> None:
    run, config = run_of(tmp_path, {"n": 4, "min_matches": 2, "max_matches": 4})
    make_queries(run, config, quiet)
    # "a circle" is expected seven times, "a dog" once, and the zebra is of another split.
    assert texts(run) == {"a red circle": 4.0, "a blue circle": 3.0, "two red squares": 2.0, "two squares": 2.0}
    listed = {(row["kind"], row["text"]): row["images"] for row in run.read(ATTRIBUTES).to_pylist()}
    assert listed["word", "circle"] == 7 and listed["colour", "red"] == 6 and listed["combination", "a circle"] == 7
    assert ("word", "dog") not in listed and ("word", "zebra") not in listed
    assert facts_of(run)["sources"] == {"template": 4}


def test_expected_matches_follow_the_size_of_the_gallery(tmp_path: Path) -> None:
    gallery = {"size": 5, "clusters": 2}
    run, config = run_of(tmp_path, {"n": 1, "min_matches": 2, "max_matches": 3}, gallery=gallery)
    make_queries(run, config, quiet)
    # Half of the pictures: half of the matches.
    assert texts(run) == {"a red circle": 2.0}


def test_captions_as_queries_count_what_is_known_to_match(tmp_path: Path) -> None:
    run, config = run_of(tmp_path, {"n": 3, "source": "captions", "min_matches": 3, "max_matches": 4})
    make_queries(run, config, quiet)
    found = {text_key(text): expected for text, expected in texts(run).items()}
    # Both ways to write "two red squares" are one text, and the dog is of the group of one of them.
    assert found == {text_key("a red circle"): 4.0, text_key("a blue circle"): 3.0, text_key("two red squares"): 3.0}
    assert run.manifest(ATTRIBUTES) is None


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        ({"n": 5, "min_matches": 2, "max_matches": 4}, r"only 4 attribute combinations .* 2 to 4 .*queries\.n=5"),
        ({"n": 4, "source": "captions", "min_matches": 3}, r"only 3 captions are expected to match 3 to 100"),
    ],
)
def test_too_few(tmp_path: Path, queries: dict[str, Any], message: str) -> None:
    run, config = run_of(tmp_path, queries)
    with pytest.raises(RunError, match=message):
        make_queries(run, config, quiet)


def test_the_same_for_a_seed_and_held_out_in_part(tmp_path: Path) -> None:
    found = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1), ("d", 2)):
        queries = {"n": 4, "min_matches": 1, "max_matches": 10, "held_out": 0.5}
        run, config = run_of(tmp_path / name, queries, seed=seed)
        make_queries(run, config, quiet)
        rows = run.read(QUERIES).to_pylist()
        assert sum(row["held_out"] for row in rows) == 2 and len({row["text_key"] for row in rows}) == 4
        found.append({row["text"]: row["held_out"] for row in rows})
    assert found[0] == found[1] and not found[0] == found[2] == found[3]
