"""A run of six evaluated pictures with ranks made by hand, before and after a repair."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from repair_ray import tables
from repair_ray.data.shards import ShardWriter
from repair_ray.data.text import text_key
from repair_ray.run import Recipe, Run

HOSTILE = "a dog</script><img src=x onerror=\"document.title='owned'\"><!-- & 'quotes' \u2028 end"
# Two captions a picture. The first of p0 attacks, p4 says what p5 says.
TEXTS = {
    "p0": (HOSTILE, "a brown dog on a lawn"),
    "p1": ("a red kite over a beach", "a kite in the wind"),
    "p2": ("two cats on a sofa", "a sofa with cats"),
    "p3": ("a café with a green door", "a door"),
    "p4": ("a bowl of soup", "soup for two"),
    "p5": ("a bowl of soup", "hot soup"),
}
COLOURS = {"p0": "brown", "p1": "red", "p2": "orange", "p3": "green", "p4": "white", "p5": "navy"}
# Rank of the best right item, before and after; the items ranked first are made to fit.
IMAGE_RANKS = {"p0": (3, 1), "p1": (1, 2), "p2": (1, 1), "p3": (4, 2), "p4": (2, 1), "p5": (1, 1)}
CAPTION_RANKS = {
    **{"p0-0": (2, 1), "p0-1": (1, 1), "p1-0": (1, 1), "p1-1": (1, 3), "p2-0": (5, 4), "p2-1": (1, 1)},
    **{"p3-0": (1, 1), "p3-1": (2, 2), "p4-0": (1, 1), "p4-1": (3, 1), "p5-0": (1, 1), "p5-1": (1, 1)},
}
OF_CAPTION = {f"{image}-{n}": image for image in TEXTS for n in range(2)}


def picture(colour: str, size: int = 64) -> bytes:
    made = Image.new("RGB", (size, size), "#dddddd")
    ImageDraw.Draw(made).ellipse((size // 6, size // 6, size - size // 6, size - size // 6), fill=colour)
    buffer = io.BytesIO()
    made.save(buffer, "png")
    return buffer.getvalue()


def commit(run: Run, product: str, kind: tables.Table, rows: list[dict[str, Any]], **facts: Any) -> None:
    run.ready(product, Recipe({}))
    run.commit(product, Recipe({}), kind, tables.to_table(rows, kind.schema), 1.0, **facts)


def make_evaluated(folder: Path, *, drop_shards: bool = False, items_kept: bool = True) -> Run:
    """Data and the ranks of `base/metrics` and `round-1/metrics`; `items_kept`: whether they have the items."""
    run = Run(folder)
    with ShardWriter(str(run.path("data/shards")), "source", 2**20, str(run.folder)) as shards:
        refs = {image: shards.add(picture(colour), image).ref() for image, colour in COLOURS.items()}
    ok = {"split": "test", "status": "ok"}
    images = [
        {"image_id": image, "group_id": f"g{image}", "uri": ref.uri, "offset": ref.offset, "length": ref.length, **ok}
        for image, ref in refs.items()
    ]
    captions = [
        {
            **{"caption_id": f"{image}-{n}", "image_id": image, "group_id": f"g{image}", "position": n},
            **{"text": text, "text_key": text_key(text), **ok},
        }
        for image, texts in TEXTS.items()
        for n, text in enumerate(texts)
    ]
    commit(run, "data/images", tables.IMAGES, images)
    commit(run, "data/captions", tables.CAPTIONS, captions)
    for which, product in enumerate(("base/metrics", "round-1/metrics")):
        rows = [
            _ranks(query, direction, ranks[which], items_kept)
            for direction, asked in (("i2t", IMAGE_RANKS), ("t2i", CAPTION_RANKS))
            for query, ranks in asked.items()
        ]
        commit(run, product, tables.RANKS, rows)
    if drop_shards:
        for shard in run.path("data/shards").glob("*.tar"):
            shard.unlink()
    return run


def _ranks(query: str, direction: str, rank: int, items_kept: bool) -> dict[str, Any]:
    gallery = list(OF_CAPTION if direction == "i2t" else TEXTS)
    right = [item for item in gallery if item in (OF_CAPTION.get(query), f"{query}-0", f"{query}-1")]
    wrong = [item for item in gallery if item not in right]
    order = [*wrong[: rank - 1], right[0], *wrong[rank - 1 :]][:5]
    top = [{"item_id": item, "score": 0.9 - 0.1 * place, "right": item in right} for place, item in enumerate(order)]
    row = {"query_id": query, "direction": direction, "rank": rank, "status": "ok"}
    return {
        **row,
        "ground_truth_id": right[0],
        "ground_truth_score": 1.0 - 0.1 * rank,
        "top": top if items_kept else [],
    }


def metrics(i2t: float, t2i: float) -> dict[str, Any]:
    def of(value: float) -> dict[str, Any]:
        return {"r@1": value, "r@5": 90.0, "r@10": 99.0, "mrr": 70.0, "r@1_ci": [value - 5, value + 5], "n": 6}

    return {"i2t": of(i2t), "t2i": of(t2i)}


def evaluated_summary() -> dict[str, Any]:
    """A summary that fits `make_evaluated`, with a control, a smaller budget, and a stage that was stopped."""
    stage = {"rows": 6, "rows_per_second": 2.0, "statuses": {"ok": 6}, "reasons": {}}
    same = {"right_in_both": 8, "wrong_in_both": 1}
    return {
        "name": "looked at",
        "strategy": "repair",
        "seed": 3,
        "config": {"variants": {"half": {"mining": {"budget": 5}}, "other": {"selection": {"audit": False}}}},
        "evaluation": {"split": "test"},
        "base": {"metrics": metrics(50.0, 60.0)},
        "rounds": [
            {
                "failures": {"i2t": 7, "t2i": 5},
                "verdicts": {"valid": 10, "benign_match": 2},
                "error_types": {"i2t": {"object": 4, "count": 2}, "t2i": {"attribute": 3}},
                "edits": {"accepted": {"i2t": 6, "t2i": 4}},
                "corrected": 10,
                "metrics": metrics(70.0, 65.0),
            }
        ],
        "result": {"round": 1, "reason": None},
        "spent": {"tokens": 12_345, "image_edits": 12, "gpu_hours": 0.025, "cost": 0.5},
        "controls": {
            "vanilla_equal_compute": {"metrics": metrics(55.0, 61.0), "items": 100, "corrected": 0},
            "half": {"metrics": metrics(60.0, 63.0), "items": 90, "corrected": 5},
            "other": {"metrics": metrics(61.0, 64.0), "items": 90, "corrected": 7},
        },
        "changes": {
            "base": {
                "i2t": {"fixed": 2, "broken": 1, "right_in_both": 2, "wrong_in_both": 1, "p": 1.0},
                "t2i": {"fixed": 2, "broken": 1, "p": 1.0, **same},
            },
            "vanilla_equal_compute": {
                "i2t": {"fixed": 9, "broken": 1, "p": 22 / 1024, **same},
                "t2i": {"fixed": 99, "broken": 1, "p": 1e-9, **same},
            },
        },
        "training": {
            "controls/a_variant_with_a_name_that_is_wider_than_a_phone/training": {
                **{"items_encoded": 90, "steps": 20, "best_step": 10},
                "history": [{"step": 10, "infonce": 2.5, "validation": 50.0}, {"step": 20, "infonce": 2.0}],
            }
        },
        "language": {
            "products": {
                "round-1/verdicts_answers": {
                    **{"model": "judge", "questions": 12, "calls": 13, "input_tokens": 12_000, "output_tokens": 345},
                    **{"seconds": 6.5, "cost": 0.5},
                }
            },
            "calls_per_pair": 1.3,
        },
        "stages": [
            {"name": "data/images", "seconds": 10.0, "started": 1000.0, "finished": 1010.0, **stage},
            {"name": "base/training", "seconds": 30.0, "started": 1010.0, "finished": 1080.0, **stage},
            {"name": "round-1/training", "seconds": 20.0, "started": 1080.0, "finished": 1100.0, **stage},
        ],
    }
