"""Repairs as people look at them: 3x3 grids around an anchor pair, and how anchors are connected."""

from __future__ import annotations

import difflib
import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from repair_ray import tables
from repair_ray.data.text import text_key
from repair_ray.report.charts import bars, log_bins
from repair_ray.report.pictures import DataRows, Pictures, Row, having
from repair_ray.run import Run

EXAMPLES = 12
COLUMNS = [
    *("failure_id", "direction", "query_id", "candidate_id", "ground_truth_id", "kind", "instruction"),
    *("text", "uri", "offset", "length", "align_before", "align", "scaffold", "status"),
]


@dataclass
class _Anchor:
    """An anchor pair with the repairs in its neighbourhood. `caption` None: the image's first caption."""

    image: str
    caption: str | None
    repairs: dict[str, list[Row]] = field(default_factory=lambda: {"i2t": [], "t2i": []})

    def order(self) -> tuple[Any, ...]:
        i2t, t2i = (len(rows) for rows in self.repairs.values())
        return -min(i2t, t2i, 1), -(i2t + t2i), self.image, self.caption or ""

    def best(self, direction: str) -> Row | None:
        """The repair to show: an edit rather than a paired counterpart, then the largest gain."""
        return min(self.repairs[direction], key=_preference, default=None)


def _preference(repair: Row) -> tuple[bool, float, str]:
    gain = (repair["align"] or 0.0) - (repair["align_before"] or 0.0)
    return repair["kind"] != tables.EDITED, -gain, repair["failure_id"]


class EditGrids:
    """The grid of each accepted edit of a product: its anchor pair, the edit, and a repair of the other direction."""

    def __init__(self, run: Run, edits: str, data: DataRows, pictures: Pictures) -> None:
        self._rows = {row["failure_id"]: row for row in _accepted(run, edits).to_pylist()}
        self._data, self._pictures = data, pictures
        self._owners = data.owners()
        self._by_candidate: dict[str, list[Row]] = defaultdict(list)
        for row in self._rows.values():
            self._by_candidate[row["candidate_id"]].append(row)

    def of(self, failure: str) -> Row:
        """`rows`, `columns` and `cells` as those of `repair_grids`; `subject`: the place of the edit among both.

        The repair of the other direction is the one that `repair_grids` would show; none where the anchor has none.
        """
        row = self._rows[failure]
        anchor = self._anchor(row)
        anchor.repairs[row["direction"]] = [row]
        grid = _grid(anchor, {}, self._data, self._pictures)
        # An edited caption stands among the columns, an edited picture among the rows.
        side, subject = ("columns", 1) if row["direction"] == "i2t" else ("rows", 2)
        for place, role in ((0, "false positive"), (subject, "correction")):
            grid[side][place]["role"] = f"{role}, {grid[side][place]['role']}"
        return {**grid, "subject": subject}

    def _anchor(self, row: Row) -> _Anchor:
        if row["direction"] == "i2t":
            image = self._owners[row["candidate_id"]]
            anchor = _Anchor(image, row["candidate_id"])
            anchor.repairs["t2i"] = self._by_candidate[image]
            return anchor
        image = row["candidate_id"]
        captions = [caption["caption_id"] for caption in self._data.captions_of([image])[image]]
        around = [other for caption in captions for other in self._by_candidate.get(caption, [])]
        best = min(around, key=_preference, default=None)
        anchor = _Anchor(image, best["candidate_id"] if best else None)
        anchor.repairs["i2t"] = [best] if best else []
        return anchor


def repair_grids(
    run: Run, edits: str, failures: str, data: DataRows, pictures: Pictures, limit: int = EXAMPLES
) -> list[Row]:
    """Grids of the anchors that have most repairs, complete ones first; one an image.

    Each has `rows` (pictures), `columns` (captions), `cells` (3 lists of marks: positive, negative, masked, absent) and
    `repairs` (instruction, cosines, rank). Methods, section 1, step 5.
    """
    anchors = _anchors(_accepted(run, edits), data)[:limit]
    shown = [row for anchor in anchors for d in ("i2t", "t2i") if (row := anchor.best(d)) is not None]
    found = having(run.read(failures, ["failure_id", "rank"]), "failure_id", [row["failure_id"] for row in shown])
    ranks = dict(zip(found["failure_id"].to_pylist(), found["rank"].to_pylist(), strict=True))
    return [_grid(anchor, ranks, data, pictures) for anchor in anchors]


def connectivity(run: Run, edits: str, data: DataRows, split: str | None) -> Row | None:
    """How repairs connect anchors (images with their captions); None without a repair.

    Hard negatives and hard positives an anchor, log-binned, and the groups into which repairs link anchors.

    A repair sets two hard negatives against its anchor: its picture and its caption. It is a hard positive of its
    query: a caption for the query image, or a picture for the query caption (ours; the paper gives ranges only).
    """
    rows = _accepted(run, edits).select(["direction", "query_id", "candidate_id"]).to_pylist()
    if not rows:
        return None
    owners = data.owners()
    negatives: Counter[str] = Counter()
    positives: Counter[str] = Counter()
    links = []
    for row in rows:
        i2t = row["direction"] == "i2t"
        anchor = owners[row["candidate_id"]] if i2t else row["candidate_id"]
        query = row["query_id"] if i2t else owners[row["query_id"]]
        negatives[anchor] += 2
        positives[query] += 1
        links.append((query, anchor))
    return {
        "anchors": data.usable(split) if split else None,
        **_linked(links),
        "charts": [_histogram("hard negatives", negatives), _histogram("hard positives", positives)],
    }


def _linked(links: list[tuple[str, str]]) -> Row:
    """How anchors hang together: `linked` (those on either side of a repair), `groups` of them, the `largest` one."""
    numbers: dict[str, int] = {}
    ends = np.array([[numbers.setdefault(end, len(numbers)) for end in link] for link in links], np.int64)
    graph = coo_matrix((np.ones(len(ends), bool), (ends[:, 0], ends[:, 1])), (len(numbers), len(numbers)))
    groups, of = connected_components(graph, directed=False)
    return {"linked": len(numbers), "groups": int(groups), "largest": int(np.bincount(of).max())}


def changed_words(before: str, after: str) -> list[tuple[str, bool]]:
    """`after` in pieces, each with whether it is new against `before`, word by word."""
    old, new = before.split(), after.split()
    pieces = []
    for action, _, _, start, end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if start < end:
            pieces.append((" ".join(new[start:end]), action != "equal"))
    return pieces


def _accepted(run: Run, edits: str) -> pa.Table:
    table = run.read(edits, COLUMNS)
    return table.filter(pc.equal(table["status"], tables.OK))


def _histogram(name: str, counts: Counter[str]) -> Row:
    values = list(counts.values())
    return {
        "name": name,
        "bars": bars(log_bins(values), sort=False),
        "anchors": len(values),
        "median": statistics.median(values),
        "largest": max(values),
    }


def _anchors(edits: pa.Table, data: DataRows) -> list[_Anchor]:
    rows = edits.to_pylist()
    captions = data.captions(row["candidate_id"] for row in rows if row["direction"] == "i2t")
    by_caption: dict[str, list[Row]] = defaultdict(list)
    by_image: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        (by_caption if row["direction"] == "i2t" else by_image)[row["candidate_id"]].append(row)
    found = [_Anchor(captions[caption]["image_id"], caption) for caption in by_caption]
    with_caption = {anchor.image for anchor in found}
    found += [_Anchor(image, None) for image in by_image if image not in with_caption]
    for anchor in found:
        anchor.repairs["i2t"] = by_caption.get(anchor.caption or "", [])
        anchor.repairs["t2i"] = by_image.get(anchor.image, [])
    best: dict[str, _Anchor] = {}
    for anchor in sorted(found, key=_Anchor.order):
        best.setdefault(anchor.image, anchor)
    return list(best.values())


def _grid(anchor: _Anchor, ranks: dict[str, int], data: DataRows, pictures: Pictures) -> Row:
    own = data.captions_of([anchor.image])[anchor.image]
    caption = next((row for row in own if row["caption_id"] == anchor.caption), own[0])
    image = data.images([anchor.image])[anchor.image]
    rows: list[Row | None] = [_picture_of(image, "anchor picture", caption["text"], pictures)]
    columns: list[Row | None] = [_caption_of("anchor caption", caption["text"], caption["group_id"])]
    repairs = []
    for direction in ("i2t", "t2i"):
        repair = anchor.best(direction)
        make = _caption_repair if direction == "i2t" else _picture_repair
        picture, text = make(repair, caption, data, pictures) if repair else (None, None)
        rows.append(picture)
        columns.append(text)
        if repair:
            repairs.append(_described(repair, ranks))
    cells = [[_mark(rows[r], columns[r], columns[c], diagonal=r == c) for c in range(3)] for r in range(3)]
    neighbours = sum(map(len, anchor.repairs.values()))
    return {"rows": rows, "columns": columns, "cells": cells, "repairs": repairs, "neighbours": neighbours}


def _caption_repair(repair: Row, anchor: Row, data: DataRows, pictures: Pictures) -> tuple[Row, Row]:
    image = data.images([repair["query_id"]])[repair["query_id"]]
    described = data.captions_of([repair["query_id"]])[repair["query_id"]]
    picture = _picture_of(image, "query picture", described[0]["text"], pictures)
    if repair["kind"] == tables.EDITED:
        column = _caption_of("edited caption", repair["text"], image["group_id"])
        return picture, column | {"pieces": changed_words(anchor["text"], repair["text"])}
    paired = data.captions([repair["ground_truth_id"]])[repair["ground_truth_id"]]
    return picture, _caption_of("paired caption", paired["text"], image["group_id"])


def _picture_repair(repair: Row, anchor: Row, data: DataRows, pictures: Pictures) -> tuple[Row, Row]:
    query = data.captions([repair["query_id"]])[repair["query_id"]]
    column = _caption_of("query caption", query["text"], query["group_id"])
    if repair["kind"] == tables.EDITED:
        source = repair | {"group_id": query["group_id"]}
        return _picture_of(source, "edited picture", query["text"], pictures), column
    paired = data.images([repair["ground_truth_id"]])[repair["ground_truth_id"]]
    return _picture_of(paired, "paired picture", query["text"], pictures), column


def _picture_of(row: Row, role: str, caption: str, pictures: Pictures) -> Row:
    return {"role": role, "group": row["group_id"], "picture": pictures.of(row, f"{role}, described as: {caption}")}


def _caption_of(role: str, text: str, group: str) -> Row:
    return {"role": role, "group": group, "key": text_key(text), "pieces": [(text, False)]}


def _described(repair: Row, ranks: dict[str, int]) -> Row:
    wanted = ("direction", "kind", "instruction", "align_before", "align", "scaffold")
    return {name: repair[name] for name in wanted} | {"rank": ranks.get(repair["failure_id"])}


def _mark(picture: Row | None, own: Row | None, text: Row | None, *, diagonal: bool) -> str:
    if picture is None or own is None or text is None:
        return "absent"
    if diagonal:
        return "positive"
    known = picture["group"] == text["group"] or own["key"] == text["key"]
    return "masked" if known else "negative"
