"""Instruct, edit, select: each valid failure becomes a corrected pair, or a rejected row that says why.

One graph of two pools: `candidates` makes them with language and editors, `select` scores them with the retriever.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import Any

import pyarrow as pa

from repair_ray import tables
from repair_ray.config import Config, PoolConfig
from repair_ray.engines.recorded import EDITS
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.run import Recipe, Run
from repair_ray.stages.ask import ask, with_answers
from repair_ray.stages.candidates import DRAFTS, MakeCandidates, candidate_arguments
from repair_ray.stages.cases import make_cases, passed
from repair_ray.stages.graph import Progress, Step, quiet, run_graph
from repair_ray.stages.pools import pool_of
from repair_ray.stages.questions import recipe_of
from repair_ray.stages.rows import Row
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
    language = config.edit.language or config.language

    @cache
    def cases() -> pa.Table:
        rows = passed(run, failures, verdicts, audit=config.selection.audit)
        return make_cases(run, rows, config.mining.split, embeddings)

    def asked_of(row: Row) -> str | None:
        """Nobody is asked where nothing can be edited: the pair is then taken as it is."""
        return None if row["direction"] == "t2i" and config.edit.image_editor == "none" else EDITS[row["direction"]]

    parents = (failures, verdicts, embeddings)
    asked = ask(run, config, language, product, cases, asked_of, parents, progress=progress)
    settings = {
        "language": recipe_of(language),
        "edit": config.edit.recipe,
        "selection": config.selection.model_dump(mode="json", exclude={"pool"}),
        "seed": config.seed,
    }
    # 2: a diffusion editor reads its source on the run's background and within the run's limits.
    version = 1 if config.edit.image_editor in ("none", "scene") else 2
    run_graph(
        run,
        product,
        Recipe(settings, (*parents, *asked), version),
        tables.EDITS,
        [
            Step(MakeCandidates, DRAFTS, candidate_arguments(run, config, product), *pool_of(config, "edit")),
            Step(SelectCandidate, tables.EDITS.schema, *chosen_by(run, config, spec)),
        ],
        lambda: with_answers(run, language, asked, cases(), asked_of),
        faults=config.faults,
        cluster=config.cluster,
        finish=lambda table: within_quota(table, config.selection),
        facts={"made_from": {"failures": failures, "verdicts": verdicts}},
        progress=progress,
    )


def chosen_by(run: Run, config: Config, spec: RetrieverSpec) -> tuple[dict[str, Any], PoolConfig, str]:
    """What `SelectCandidate` is set up with, its actors, and where these are set."""
    scoring = pool_of(config, "selection")
    arguments = {
        "folder": str(run.folder),
        "data": config.data.model_dump(mode="json"),
        "spec": asdict(spec),
        "device": scoring.device,
        "batch_size": config.retriever.batch_size,
        "selection": config.selection.model_dump(mode="json", exclude={"pool"}),
        "seed": config.seed,
    }
    return arguments, *scoring
