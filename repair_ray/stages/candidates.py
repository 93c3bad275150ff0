"""Instruct and edit: each valid failure gets an instruction and candidates (methods, section 1, step 3)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from repair_ray import tables
from repair_ray.config import Config, DataConfig, DiffusionConfig, LanguageConfig
from repair_ray.data.access import image_store
from repair_ray.data.shards import ShardWriter
from repair_ray.engines.editors import EditError
from repair_ray.engines.language import Draft, Verdict
from repair_ray.engines.registry import image_editor
from repair_ray.engines.tasks import AnswerError
from repair_ray.run import Run
from repair_ray.stages.cases import language_case, mismatches_of
from repair_ray.stages.pools import pool_of
from repair_ray.stages.questions import RowLanguage
from repair_ray.stages.rows import Row, RowStage
from repair_ray.stages.sources import SHARDS

DRAFTS = pa.schema([*tables.CASES, *(f for f in tables.EDITS.schema if f.name not in tables.CASES.names)])


class MakeCandidates(RowStage):
    """Writes the instruction and makes candidates: edited captions (`i2t`) or edited pictures (`t2i`)."""

    def setup(
        self,
        folder: str,
        data: dict[str, Any],
        language: dict[str, Any],
        editor: str,
        editor_settings: dict[str, Any],
        diffusion: dict[str, Any],
        device: str,
        candidates: int,
        seed: int,
        product: str,
    ) -> None:
        self._store = image_store(folder, DataConfig.model_validate(data))
        self._language = RowLanguage(LanguageConfig.model_validate(language))
        self._editor = image_editor(
            editor, DiffusionConfig.model_validate(diffusion), self._store.decode, device, editor_settings
        )
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
            return {**row, "kind": tables.PAIRED, "candidates": []}
        # Whatever got here is to be edited: what the audit judged otherwise only comes with selection.audit=false.
        verdict = Verdict("valid", mismatches_of(row))
        try:
            backend = self._language.of(row)
            instruction = backend.instruct(case, verdict)
        except AnswerError as error:
            return self.failed(row, str(error))
        row = {**row, "kind": tables.EDITED, "instruction": instruction.text, "candidates": []}
        if not instruction.feasible:
            return {**row, "status": tables.REJECTED, "reason": f"no instruction: {instruction.reason}"}
        if row["direction"] == "i2t":
            drafts = backend.edit_caption(case, instruction, self._candidates)
            return {**row, "candidates": [candidate(draft) for draft in drafts]}
        source = self._store.bytes(row["candidate_uri"], row["candidate_offset"], row["candidate_length"])
        made = [self._edit(row, source, instruction.text, number, shards) for number in range(self._candidates)]
        return {**row, "candidates": made}

    def _edit(self, row: Row, source: bytes, instruction: str, number: int, shards: ShardWriter) -> dict[str, Any]:
        assert self._editor is not None
        try:
            edited = self._editor.edit(source, instruction, tables.edit_seed(self._seed, row["failure_id"], number))
        except EditError as error:
            return {"status": tables.REJECTED, "reason": f"editor: {error}"}
        if edited == source:
            return {"status": tables.REJECTED, "reason": "the editor left the picture as it was"}
        reference = shards.add(edited, f"{row['failure_id']}-{number}").ref()
        return {"uri": reference.uri, "offset": reference.offset, "length": reference.length, "status": tables.OK}


def candidate(draft: Draft) -> dict[str, Any]:
    """A drafted caption as a candidate of an `EDITS` row."""
    problem = draft.problem
    return {"text": draft.text, "status": tables.REJECTED if problem else tables.OK, "reason": problem}


def candidate_arguments(run: Run, config: Config, product: str) -> dict[str, Any]:
    """What `MakeCandidates` is set up with to make the candidates of `product`."""
    return {
        "folder": str(run.folder),
        "data": config.data.model_dump(mode="json"),
        "language": (config.edit.language or config.language).model_dump(mode="json"),
        "editor": config.edit.image_editor,
        "editor_settings": config.edit.image_editor_settings,
        "diffusion": config.edit.diffusion.model_dump(mode="json"),
        "device": pool_of(config, "edit").device,
        "candidates": config.edit.candidates,
        "seed": config.seed,
        "product": product,
    }
