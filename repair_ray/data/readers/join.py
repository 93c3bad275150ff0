"""One record an image, where a file holds one caption a row."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from repair_ray.data.records import ImageRef, InlineImage, Item, Problem, Record


@dataclass
class _Open:
    left: int
    record: Record | None = None
    digest: str = ""
    conflict: str = ""


class RowJoiner:
    """Joins the captions of rows with the same image id.

    `repeated` maps the ids that come more than once to how often. The joined record keeps the source of its first
    row. It is yielded at the id's last row, because only then is it known that all rows agree on the picture.
    """

    def __init__(self, repeated: dict[str, int]) -> None:
        self._open = {image_id: _Open(count) for image_id, count in repeated.items()}

    def join(self, image_id: str, item: Item) -> Iterator[Item]:
        """What to yield after this row: nothing, a problem, a record, or a problem and a record."""
        state = self._open.get(image_id)
        if state is None:
            yield item
            return
        state.left -= 1
        if isinstance(item, Problem):
            yield item
        elif state.record is None:
            state.record, state.digest = item, _digest(item.image)
        else:
            self._add(state, state.record, item)
        if state.left == 0:
            del self._open[image_id]
            if state.conflict and state.record is not None:
                detail = f"rows of id {image_id!r} {state.conflict}; none is used, set data.id_column"
                yield Problem(state.record.source, "ambiguous_id", detail)
            elif state.record is not None:
                yield state.record

    def _add(self, state: _Open, first: Record, item: Record) -> None:
        if _digest(item.image) != state.digest:
            state.conflict = f"show different pictures (also at {item.source})"
        elif item.split != first.split or item.group != first.group:
            state.conflict = f"name different splits or groups (also at {item.source})"
        else:
            first.captions.extend(item.captions)


def _digest(image: ImageRef | InlineImage) -> str:
    return hashlib.sha256(image.data).hexdigest() if isinstance(image, InlineImage) else image.uri
