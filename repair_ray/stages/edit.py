"""Instruct, edit, select: each valid failure becomes a corrected pair, or a rejected row that says why.

One graph of two pools: `candidates` makes them with language and editors, `select` scores them with the retriever.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import cache

import pyarrow as pa

from repair_ray import tables
from repair_ray.config import Config
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
    data = config.data.model_dump(mode="json")
    editing, scoring = pool_of(config, "edit"), pool_of(config, "selection")
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
    choose = {
        "folder": str(run.folder),
        "data": data,
        "spec": asdict(spec),
        "device": scoring.device,
        "batch_size": config.retriever.batch_size,
        "selection": config.selection.model_dump(mode="json", exclude={"pool"}),
        "seed": config.seed,
    }
    settings = {
        "language": recipe_of(language),
        "edit": config.edit.model_dump(mode="json", exclude={"language", "pool"}),
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
            Step(MakeCandidates, DRAFTS, candidate_arguments(run, config, product), *editing),
            Step(SelectCandidate, tables.EDITS.schema, choose, *scoring),
        ],
        lambda: with_answers(run, language, asked, cases(), asked_of),
        faults=config.faults,
        cluster=config.cluster,
        finish=lambda table: within_quota(table, config.selection),
        facts={"made_from": {"failures": failures, "verdicts": verdicts}},
        progress=progress,
    )
