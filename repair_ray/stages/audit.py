"""Audit: is the ground truth right, and is the false positive really wrong? (methods, section 1, step 2)"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.config import Config, LanguageConfig
from repair_ray.engines.registry import language_backend
from repair_ray.run import Recipe, Run
from repair_ray.stages.cases import language_case, make_cases
from repair_ray.stages.graph import Progress, Step, quiet, run_graph
from repair_ray.stages.rows import Row, RowStage

VALID = "valid"


class AuditFailures(RowStage):
    """Asks the language backend about each failure. Only `valid` goes on; other judgements reject it."""

    def setup(self, language: dict[str, Any]) -> None:
        self._backend = language_backend(LanguageConfig.model_validate(language))

    def process(self, rows: list[Row]) -> list[Row]:
        return [self._audit(row) for row in rows]

    def _audit(self, row: Row) -> Row:
        verdict = self._backend.audit(language_case(row))
        valid = verdict.judgement == VALID
        return {
            **row,
            "judgement": verdict.judgement,
            "mismatches": [asdict(mismatch) for mismatch in verdict.mismatches],
            "confidence": verdict.confidence,
            "judge": self._backend.name,
            "status": tables.OK if valid else tables.REJECTED,
            "reason": None if valid else verdict.judgement,
            "explanation": verdict.reason,
        }


def audit(run: Run, config: Config, product: str, failures: str, progress: Progress = quiet) -> None:
    """Make a `verdicts` table: one row a failure."""
    run_graph(
        run,
        product,
        Recipe({"language": config.language.model_dump(mode="json")}, (failures,)),
        tables.VERDICTS,
        [
            Step(
                AuditFailures,
                tables.VERDICTS.schema,
                {"language": config.language.model_dump(mode="json")},
                config.pool.on_cpu(),
            )
        ],
        lambda: _cases(run, failures, config.mining.split),
        faults=config.faults,
        progress=progress,
    )


def _cases(run: Run, failures: str, split: str) -> pa.Table:
    table = run.read(failures)
    return make_cases(run, table.filter(pc.equal(table["status"], tables.OK)).to_pylist(), split)
