"""Instruct, edit, select: each valid failure becomes a corrected pair, or a rejected row that says why.

One graph of two pools: language and editors make candidates, the retriever scores them, the least disruptive
admissible one wins (methods, section 1, steps 3 and 4).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

from repair_ray import tables
from repair_ray.config import Config, DataConfig, LanguageConfig, SelectionConfig
from repair_ray.data.images import ImageProblem
from repair_ray.data.shards import ShardWriter
from repair_ray.data.text import text_key
from repair_ray.engines.editors import EditError
from repair_ray.engines.encoder import Encoder, RetrieverSpec
from repair_ray.engines.language import Verdict
from repair_ray.engines.registry import image_editor, language_backend
from repair_ray.engines.selection import Admission, select
from repair_ray.run import Recipe, Run
from repair_ray.stages.cases import language_case, make_cases, mismatches_of
from repair_ray.stages.embed import device_of
from repair_ray.stages.graph import Progress, Step, quiet, run_graph
from repair_ray.stages.ingest import SHARDS, image_store
from repair_ray.stages.rows import Row, RowStage

EDITED = "edited"
PAIRED = "paired"
DRAFTS = pa.schema([*tables.CASES, *(f for f in tables.EDITS.schema if f.name not in tables.CASES.names)])


class MakeCandidates(RowStage):
    """Writes the instruction and makes candidates: edited captions (`i2t`) or edited pictures (`t2i`)."""

    def setup(
        self,
        folder: str,
        data: dict[str, Any],
        language: dict[str, Any],
        editor: str,
        candidates: int,
        seed: int,
        product: str,
    ) -> None:
        self._store = image_store(folder, DataConfig.model_validate(data))
        self._backend = language_backend(LanguageConfig.model_validate(language))
        self._editor = image_editor(editor)
        self._candidates, self._seed = candidates, seed
        self._folder, self._product = folder, product

    def process(self, rows: list[Row]) -> list[Row]:
        # One shard a batch, named after what is in it: a batch that is done again writes the same file.
        prefix = "edit-" + tables.row_id(self._product, *(row["failure_id"] for row in rows))
        with ShardWriter(f"{self._folder}/{SHARDS}", prefix, 2**30, self._folder) as shards:
            return [self._make(row, shards) for row in rows]

    def _make(self, row: Row, shards: ShardWriter) -> Row:
        case = language_case(row)
        if row["direction"] == "t2i" and self._editor is None:
            return {**row, "kind": PAIRED, "candidates": []}
        verdict = Verdict(row["judgement"] or "valid", mismatches_of(row))
        instruction = self._backend.instruct(case, verdict)
        row = {**row, "kind": EDITED, "instruction": instruction.text, "candidates": []}
        if not instruction.feasible:
            return {**row, "status": tables.REJECTED, "reason": f"no instruction: {instruction.reason}"}
        if row["direction"] == "i2t":
            texts = self._backend.edit_caption(case, instruction, self._candidates)
            return {**row, "candidates": [{"text": text, "status": tables.OK} for text in texts]}
        source = self._store.bytes(row["candidate_uri"], row["candidate_offset"], row["candidate_length"])
        made = [self._edit(row, source, instruction.text, number, shards) for number in range(self._candidates)]
        return {**row, "candidates": made}

    def _edit(self, row: Row, source: bytes, instruction: str, number: int, shards: ShardWriter) -> dict[str, Any]:
        assert self._editor is not None
        seed = int(tables.row_id(self._seed, row["failure_id"], number), 16) % 2**31
        try:
            edited = self._editor.edit(source, instruction, seed)
        except EditError as error:
            return {"status": tables.REJECTED, "reason": f"editor: {error}"}
        if edited == source:
            return {"status": tables.REJECTED, "reason": "the editor left the picture as it was"}
        reference = shards.add(edited, f"{row['failure_id']}-{number}").ref()
        return {"uri": reference.uri, "offset": reference.offset, "length": reference.length, "status": tables.OK}


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
        return "beyond the tokenizer's context" if self._encoder.preprocess.truncated(text) else None

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
        if row["kind"] == PAIRED:
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


def edit(
    run: Run,
    config: Config,
    product: str,
    verdicts: str,
    failures: str,
    embeddings: str,
    spec: RetrieverSpec,
    progress: Progress = quiet,
) -> None:
    """Make an `edits` table: one row a failure that passed the audit (or, without audit, a failure)."""
    data = config.data.model_dump(mode="json")
    pool = config.pool
    make = {
        "folder": str(run.folder),
        "data": data,
        "language": config.language.model_dump(mode="json"),
        "editor": config.edit.image_editor,
        "candidates": config.edit.candidates,
        "seed": config.seed,
        "product": product,
    }
    choose = {
        "folder": str(run.folder),
        "data": data,
        "spec": asdict(spec),
        "device": device_of(config),
        "batch_size": config.retriever.batch_size,
        "selection": config.selection.model_dump(mode="json"),
        "seed": config.seed,
    }
    settings = {
        "language": config.language.model_dump(mode="json"),
        "edit": config.edit.model_dump(mode="json"),
        "selection": config.selection.model_dump(mode="json"),
        "seed": config.seed,
    }
    run_graph(
        run,
        product,
        Recipe(settings, (failures, verdicts, embeddings)),
        tables.EDITS,
        [
            Step(MakeCandidates, DRAFTS, make, pool.on_cpu()),
            Step(SelectCandidate, tables.EDITS.schema, choose, pool),
        ],
        lambda: _cases(run, config, failures, verdicts, embeddings),
        faults=config.faults,
        finish=lambda table: within_quota(table, config.selection),
        progress=progress,
    )


def _cases(run: Run, config: Config, failures: str, verdicts: str, embeddings: str) -> pa.Table:
    judged = {row["failure_id"]: row for row in run.read(verdicts).to_pylist()}
    table = run.read(failures)
    rows = []
    for failure in table.filter(pc.equal(table["status"], tables.OK)).to_pylist():
        verdict = judged[failure["failure_id"]]
        if verdict["status"] == tables.OK or (not config.selection.audit and verdict["status"] != tables.ERROR):
            rows.append({**failure, "judgement": verdict["judgement"], "mismatches": verdict["mismatches"]})
    return make_cases(run, rows, config.mining.split, embeddings)


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
