"""What the demo's world knows and no stage ever sees: was the audit right, were the edits right, were they small?"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from repair_ray.data.store import ImageStore
from repair_ray.run import Recipe, Run
from repair_ray.tables import OK
from repair_ray.world.render import scene_of
from repair_ray.world.scene import Scene
from repair_ray.world.truth import caption_difference, describes, edit_distance

Row = dict[str, Any]


def measure_truth(run: Run, place: str, store: ImageStore) -> None:
    """Measure audit and edits of a round against the scenes; keeps the figures as the facts of `<place>/truth`.

    Precision: of the failures judged valid, how many are truly wrong. Recall: of the truly wrong, how many were judged
    valid. Validity: accepted edits that truly match their query. Minimality: words, or scene attributes, that an
    accepted edit changed (mean), and the share that changed no more than three. All but the means in percent.
    """
    product = f"{place}/truth"
    edited = f"{place}/edits"
    mined, audited = run.made_from(edited)["failures"], run.made_from(edited)["verdicts"]
    recipe = Recipe({}, (mined, audited, edited))
    if run.ready(product, recipe):
        return
    start = time.monotonic()
    look = _Look(run, store)
    failures = {row["failure_id"]: row for row in run.read(mined).to_pylist() if row["status"] == OK}
    judged = [(row["status"] == OK, look.wrong(failures[row["failure_id"]])) for row in run.read(audited).to_pylist()]
    edits = [row for row in run.read(edited).to_pylist() if row["status"] == OK and row["kind"] == "edited"]
    checked = {
        direction: [look.edit(row) for row in edits if row["direction"] == direction] for direction in ("i2t", "t2i")
    }
    facts = {
        "audit_precision": _share(judged, lambda pair: pair[0], lambda pair: pair[1]),
        "audit_recall": _share(judged, lambda pair: pair[1], lambda pair: pair[0]),
        "edit_validity": {d: _share(found, lambda _: True, lambda e: e[0]) for d, found in checked.items()},
        "minimality": {d: _share(found, lambda _: True, lambda e: e[1] <= 3) for d, found in checked.items()},
        "mean_changes": {d: round(sum(e[1] for e in f) / len(f), 3) if f else None for d, f in checked.items()},
    }
    run.finish(product, recipe, time.monotonic() - start, truth=facts, rows=len(judged) + len(edits))


def _share(items: list[Any], of: Callable[[Any], bool], are: Callable[[Any], bool]) -> float | None:
    chosen = [item for item in items if of(item)]
    return round(100 * sum(are(item) for item in chosen) / len(chosen), 3) if chosen else None


class _Look:
    """Looks rows up in the scenes that the pictures carry."""

    def __init__(self, run: Run, store: ImageStore) -> None:
        self._store = store
        self._images = {row["image_id"]: row for row in run.read("data/images").to_pylist()}
        self._texts = {
            row["caption_id"]: row["text"] for row in run.read("data/captions", ["caption_id", "text"]).to_pylist()
        }
        self._scenes: dict[str, Scene] = {}

    def scene(self, image: str) -> Scene:
        if image not in self._scenes:
            self._scenes[image] = self._read(self._images[image])
        return self._scenes[image]

    def _read(self, row: Row) -> Scene:
        return scene_of(self._store.bytes(row["uri"], row["offset"], row["length"]))

    def wrong(self, failure: Row) -> bool:
        """Whether a false positive truly does not match its query."""
        i2t = failure["direction"] == "i2t"
        caption, image = (
            (failure["candidate_id"], failure["query_id"]) if i2t else (failure["query_id"], failure["candidate_id"])
        )
        return not describes(self._texts[caption], self.scene(image))

    def edit(self, row: Row) -> tuple[bool, int]:
        """Whether an edit truly matches its query, and how much it changed."""
        if row["direction"] == "i2t":
            source = self._texts[row["candidate_id"]]
            return describes(row["text"], self.scene(row["query_id"])), caption_difference(source, row["text"])
        edited = self._read(row)
        return describes(self._texts[row["query_id"]], edited), edit_distance(self.scene(row["candidate_id"]), edited)


def read_truth(run: Run, place: str) -> dict[str, Any]:
    """The figures of `measure_truth`, or nothing where the data has no truth."""
    return dict((run.manifest(f"{place}/truth") or {}).get("truth", {}))
