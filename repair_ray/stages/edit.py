"""Instruct, edit, select: each valid failure becomes a corrected pair, or a rejected row that says why.

One graph of two pools: `candidates` makes them with language and editors, `select` scores them with the retriever.
"""

from __future__ import annotations

from dataclasses import asdict

import pyarrow as pa

from repair_ray import tables
from repair_ray.config import Config
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.run import Recipe, Run
from repair_ray.stages.candidates import DRAFTS, MakeCandidates
from repair_ray.stages.cases import make_cases, passed
from repair_ray.stages.embed import device_of
from repair_ray.stages.graph import Progress, Step, quiet, run_graph
from repair_ray.stages.select import SelectCandidate, within_quota


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
        facts={"made_from": {"failures": failures, "verdicts": verdicts}},
        progress=progress,
    )


def _cases(run: Run, config: Config, failures: str, verdicts: str, embeddings: str) -> pa.Table:
    rows = passed(run, failures, verdicts, audit=config.selection.audit)
    return make_cases(run, rows, config.mining.split, embeddings)
