"""Select: the least disruptive admissible candidate, within the quotas (methods, section 1, step 4)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from repair_ray import tables
from repair_ray.config import DataConfig, SelectionConfig
from repair_ray.data.access import image_store
from repair_ray.data.images import ImageProblem
from repair_ray.data.text import text_key
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.engines.selection import Admission, select
from repair_ray.stages.rows import Row, RowStage


class SelectCandidate(RowStage):
    """Scores candidates with the current retriever and keeps the least disruptive admissible one."""

    def setup(
        self,
        folder: str,
        data: dict[str, Any],
        spec: dict[str, Any],
        device: str,
        batch_size: int,
        selection: dict[str, Any],
        seed: int,
    ) -> None:
        self._store = image_store(folder, DataConfig.model_validate(data))
        # Here and not above: the driver, which only names this class, needs no model library.
        from repair_ray.engines.encoder import Encoder

        self._encoder = Encoder(RetrieverSpec(**spec), device, batch_size)
        self._selection = SelectionConfig.model_validate(selection)
        self._seed = seed

    def process(self, rows: list[Row]) -> list[Row]:
        for row in rows:
            for candidate in row["candidates"] or []:
                self._check(row, candidate)
        self._score(rows)
        return [self._select(row) for row in rows]

    def _check(self, row: Row, candidate: dict[str, Any]) -> None:
        if candidate["status"] != tables.OK:
            return
        if row["direction"] == "i2t":
            reason = self._text_fault(row, candidate["text"])
        else:
            try:
                picture = self._store.rgb(candidate["uri"], candidate["offset"], candidate["length"])
                reason = _picture_fault(picture)
                candidate["_picture"] = picture
            except ImageProblem as problem:
                reason = f"edited picture: {problem.reason}"
        if reason:
            candidate["status"], candidate["reason"] = tables.REJECTED, reason

    def _text_fault(self, row: Row, text: str) -> str | None:
        if text_key(text) == text_key(row["candidate_text"]):
            return "equal to its source"
        if text_key(text) in {text_key(caption) for caption in row["query_captions"]}:
            return "equal to a ground truth"
        seen = self._encoder.preprocess.sees_change(row["candidate_text"], text)
        return None if seen else "its changes lie beyond the tokenizer's context"

    def _score(self, rows: list[Row]) -> None:
        pending = [(row, c) for row in rows for c in row["candidates"] or [] if c["status"] == tables.OK]
        texts = [(row, c) for row, c in pending if row["direction"] == "i2t"]
        pictures = [(row, c) for row, c in pending if row["direction"] == "t2i"]
        vectors = self._encoder.encode_texts([c["text"] for _, c in texts])
        self._measure(texts, vectors)
        self._measure(pictures, self._encoder.encode_images([c.pop("_picture") for _, c in pictures]))

    @staticmethod
    def _measure(items: list[tuple[Row, dict[str, Any]]], vectors: np.ndarray) -> None:
        for (row, candidate), vector in zip(items, vectors, strict=True):
            candidate["align"] = float(vector @ np.asarray(row["query_vector"], np.float32))
            candidate["scaffold"] = float(vector @ np.asarray(row["candidate_vector"], np.float32))

    def _select(self, row: Row) -> Row:
        before = float(np.dot(np.asarray(row["query_vector"]), np.asarray(row["candidate_vector"])))
        row = {**row, "align_before": before}
        if row["kind"] == tables.PAIRED:
            return {**row, "status": tables.OK}
        candidates = row["candidates"] or []
        admissions = [Admission(c["align"], c["scaffold"]) if c["status"] == tables.OK else None for c in candidates]
        seed = int(tables.row_id(self._seed, row["failure_id"]), 16)
        chosen, reasons = select(
            admissions,
            before,
            min_gain=self._selection.min_gain,
            min_scaffold=self._selection.min_scaffold,
            alpha=self._selection.alpha,
            pick=self._selection.pick,
            seed=seed,
        )
        for candidate, reason in zip(candidates, reasons, strict=True):
            if candidate["status"] == tables.OK and reason:
                candidate["status"], candidate["reason"] = tables.REJECTED, reason
        if chosen is None:
            first = next((c["reason"] for c in candidates if c.get("reason")), "no candidate was made")
            return {**row, "status": tables.REJECTED, "reason": first}
        best = candidates[chosen]
        kept = {name: best.get(name) for name in ("text", "uri", "offset", "length", "align", "scaffold")}
        return {**row, **kept, "status": tables.OK}


def _picture_fault(picture: Image.Image) -> str | None:
    flat = len(picture.getcolors(maxcolors=2) or [None, None]) == 1
    return "edited picture is one flat colour" if flat else None


def within_quota(table: pa.Table, selection: SelectionConfig) -> pa.Table:
    """At most `d_i2t` edits an image and `d_t2i` a caption; the rest is rejected.

    The false positives that the retriever scored highest come first (ties by id): they confuse it most.
    """
    rows = table.to_pylist()
    kept: dict[tuple[str, str], int] = {}
    taken: set[tuple[str, str]] = set()
    for row in sorted(rows, key=lambda row: (-(row["align_before"] or 0.0), row["failure_id"])):
        if row["status"] != tables.OK:
            continue
        query = (row["direction"], row["query_id"])
        same = (row["query_id"], text_key(row["text"])) if row["text"] else None
        quota = selection.d_i2t if row["direction"] == "i2t" else selection.d_t2i
        if same in taken:
            row["status"], row["reason"] = tables.REJECTED, "the same edit was kept for this query already"
        elif kept.get(query, 0) >= quota:
            row["status"], row["reason"] = tables.REJECTED, "beyond the quota of its query"
        else:
            kept[query] = kept.get(query, 0) + 1
            if same:
                taken.add(same)
    return tables.to_table(rows, tables.EDITS.schema)
