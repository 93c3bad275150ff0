"""The hard pairs of a run: what is right, what was taken for it, and how the one was made from the other.

Both directions give the same four things. `i2t`: the query's picture with the edited caption; against them the caption
that was wrongly retrieved, with its own picture. `t2i`: the edited picture with the query's caption; against them the
picture that was wrongly retrieved, with a caption of its own: the one that says most of what was wrong of it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.config import Config
from repair_ray.data.text import text_key
from repair_ray.export.makers import Maker, maker_of
from repair_ray.run import CAPTIONS, IMAGES, Run, RunError
from repair_ray.stages.products import reviewed_product

SHOWN = 5

Row = dict[str, Any]
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Picture:
    """One picture by reference; `source` is the file and row that it was read from, `synthetic` whether it is edited.

    `image_id` is the images table's, or for an edited picture `edit-<pair id>`.
    """

    image_id: str
    uri: str
    offset: int | None
    length: int | None
    sha256: str | None
    synthetic: bool
    source: str | None


@dataclass(frozen=True)
class Caption:
    """One caption; `caption_id` is the captions table's, or for an edited caption `edit-<pair id>`."""

    caption_id: str
    text: str
    synthetic: bool


@dataclass(frozen=True)
class HardPair:
    """A right pair (`image`, `caption`) and the pair that it is hard to tell from (`neg_image`, `neg_caption`).

    `neg_caption` is None where the wrong picture has no caption but such as equal `caption`. `anchor` is a caption of
    the query's own picture (`i2t`). `about` holds the other facts: ids, scores, the audit, and who made the edit.
    """

    pair_id: str
    direction: str
    kind: str
    image: Picture
    caption: Caption
    neg_image: Picture
    neg_caption: Caption | None
    anchor: str | None
    about: Row

    def record(self) -> Row:
        """All that is known of the pair as one flat dict of plain values."""
        negative = self.neg_caption
        return {
            "pair_id": self.pair_id,
            "direction": self.direction,
            "kind": self.kind,
            "caption": self.caption.text,
            "neg_caption": negative.text if negative else None,
            "image_id": self.image.image_id,
            "caption_id": self.caption.caption_id,
            "neg_image_id": self.neg_image.image_id,
            "neg_caption_id": negative.caption_id if negative else None,
            "synthetic_image": self.image.synthetic,
            "synthetic_caption": self.caption.synthetic,
            "source": self.image.source,
            "neg_source": self.neg_image.source,
            **self.about,
        }


def hard_pairs(run: Run, config: Config, place: str) -> list[HardPair]:
    """The accepted edits of a round with both sides of each, in the order of their ids, without those that training
    has left out because people refused them.

    Raises:
        RunError: the round has no edits, or none was accepted; says why.
    """
    product = f"{place}/edits"
    reviewed = reviewed_product(product)
    edits = run.read(reviewed if run.manifest(reviewed) is not None else product)
    accepted = edits.filter(pc.equal(edits["status"], tables.OK)).sort_by("failure_id").to_pylist()
    if not accepted:
        raise RunError(f"{product} in {run.folder}: nothing to export, {_why(run, product)}")
    made_from = run.made_from(product)
    data = _Data(run)
    failures = _by_id(run.read(made_from.get("failures", f"{place}/failures")))
    verdicts = _by_id(run.read(made_from.get("verdicts", f"{place}/verdicts")))
    makers = {direction: maker_of(config, direction) for direction in ("i2t", "t2i")}
    return [
        _pair(row, data, failures[row["failure_id"]], verdicts[row["failure_id"]], makers[row["direction"]])
        for row in accepted
    ]


def originals(run: Run, splits: tuple[str, ...]) -> Iterator[tuple[Picture, Caption]]:
    """The usable pairs of the data set, as training takes them for anchors: every caption with its picture."""
    data = _Data(run)
    for row in data.captions.values():
        image = data.images[row["image_id"]]
        if row["split"] in splits and row["status"] == tables.OK and image["status"] == tables.OK:
            yield _picture(image), _caption(row)


class _Data:
    """Rows of the images and captions tables, by id and in the order of their ids."""

    def __init__(self, run: Run) -> None:
        self.images: dict[str, Row] = {row["image_id"]: row for row in run.read(IMAGES).to_pylist()}
        self.captions: dict[str, Row] = {row["caption_id"]: row for row in run.read(CAPTIONS).to_pylist()}
        self.captions_of: dict[str, list[Row]] = defaultdict(list)
        for row in sorted(self.captions.values(), key=lambda row: (row["image_id"], row["position"])):
            if row["status"] == tables.OK:
                self.captions_of[row["image_id"]].append(row)


def _pair(row: Row, data: _Data, failure: Row, verdict: Row, maker: Maker) -> HardPair:
    edited = row["kind"] != tables.PAIRED
    make = _caption_pair if row["direction"] == "i2t" else _image_pair
    image, caption, neg_image, neg_caption, anchor = make(row, data, verdict, edited)
    about = {
        "group_id": data.images[row["query_id"]]["group_id"]
        if row["direction"] == "i2t"
        else data.captions[row["query_id"]]["group_id"],
        "ground_truth_id": row["ground_truth_id"],
        **{name: failure[name] for name in ("rank", "score", "ground_truth_score")},
        **{name: row[name] for name in ("align_before", "align", "scaffold", "instruction")},
        **{name: verdict[name] for name in ("judge", "judgement", "confidence", "explanation", "mismatches")},
        **maker.facts(row if edited else None),
    }
    return HardPair(
        row["failure_id"], row["direction"], row["kind"], image, caption, neg_image, neg_caption, anchor, about
    )


_Parts = tuple[Picture, Caption, Picture, Caption | None, str | None]


def _caption_pair(row: Row, data: _Data, verdict: Row, edited: bool) -> _Parts:
    truth, wrong = data.captions[row["ground_truth_id"]], data.captions[row["candidate_id"]]
    caption = Caption(f"edit-{row['failure_id']}", row["text"], True) if edited else _caption(truth)
    query, owner = data.images[row["query_id"]], data.images[wrong["image_id"]]
    return _picture(query), caption, _picture(owner), _caption(wrong), truth["text"]


def _image_pair(row: Row, data: _Data, verdict: Row, edited: bool) -> _Parts:
    query, wrong = data.captions[row["query_id"]], data.images[row["candidate_id"]]
    image = _picture(data.images[row["ground_truth_id"]])
    if edited:
        reference = {name: row[name] for name in ("uri", "offset", "length")}
        image = Picture(f"edit-{row['failure_id']}", **reference, sha256=None, synthetic=True, source=None)
    others = [c for c in data.captions_of[row["candidate_id"]] if text_key(c["text"]) != text_key(query["text"])]
    said = _naming(others, verdict["mismatches"] or [])
    return image, _caption(query), _picture(wrong), _caption(said) if said else None, None


def _naming(captions: list[Row], mismatches: list[Row]) -> Row | None:
    """The caption that holds most words of what the audit found wrong; of several, the first."""
    wrong = {word for mismatch in mismatches for word in _words(mismatch["candidate"] or "")}
    return max(captions, key=lambda row: len(wrong & _words(row["text"])), default=None)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def _picture(row: Row) -> Picture:
    # The file's name alone: the folders above it are this machine's.
    source = (row["source"] or "").replace("\\", "/").rpartition("/")[2] or None
    return Picture(
        row["image_id"], row["uri"], row["offset"], row["length"], row["sha256"], synthetic=False, source=source
    )


def _caption(row: Row) -> Caption:
    return Caption(row["caption_id"], row["text"], synthetic=False)


def _by_id(table: pa.Table) -> dict[str, Row]:
    return {row["failure_id"]: row for row in table.to_pylist()}


def _why(run: Run, product: str) -> str:
    manifest = run.manifest(product) or {}
    reasons = Counter(manifest.get("reasons", {})).most_common(SHOWN)
    told = "; ".join(f"{count} x {reason}" for reason, count in reasons) or "the table is empty"
    return f"none of {manifest.get('rows', 0)} edits was accepted ({told})"
