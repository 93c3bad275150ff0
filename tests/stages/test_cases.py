"""What language backends and editors may see of a failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from repair_ray import tables
from repair_ray.run import CAPTIONS, IMAGES, Recipe, Run
from repair_ray.stages.cases import make_cases

USUAL = {"split": "train", "status": tables.OK}


def test_captions_of_a_whole_group_are_known_each_once(tmp_path: Path) -> None:
    """Images a and b show the same thing; c shows another."""
    run = Run(tmp_path)

    def commit(product: str, kind: tables.Table, rows: list[dict[str, Any]]) -> None:
        run.ready(product, Recipe({}))
        run.commit(product, Recipe({}), kind, tables.to_table(rows, kind.schema), 0.0)

    groups = {"a": "one", "b": "one", "c": "two"}
    texts = {"a": ["second of a", "first of a"], "b": ["of b", "first of a"], "c": ["of c"]}
    commit(IMAGES, tables.IMAGES, [{"image_id": i, "group_id": g, **USUAL} for i, g in groups.items()])
    captions = [
        {"caption_id": f"{image}{n}", "image_id": image, "group_id": groups[image], "position": -n, "text": text}
        for image, found in texts.items()
        for n, text in enumerate(found)
    ]
    commit(CAPTIONS, tables.CAPTIONS, [{**row, "text_key": row["text"], **USUAL} for row in captions])
    pair = {"direction": "i2t", "query_id": "b", "candidate_id": "c0", "failure_id": "f"}
    (case,) = make_cases(run, [pair], "train").to_pylist()
    assert case["query_captions"] == ["first of a", "of b", "second of a"]
    assert case["candidate_captions"] == ["of c"] and case["candidate_text"] == "of c"
