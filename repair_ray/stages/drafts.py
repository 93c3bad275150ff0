"""Drafts of a strategy of another package: for failures as candidates, for captions as negatives."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa

from repair_ray import tables
from repair_ray.config import Config
from repair_ray.data.text import text_key
from repair_ray.engines.language import Case, Draft
from repair_ray.engines.registry import strategy
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.plugins import STRATEGIES, identity
from repair_ray.run import CAPTIONS, IMAGES, Recipe, Run
from repair_ray.stages.candidates import DRAFTS, candidate
from repair_ray.stages.captioned import captioned
from repair_ray.stages.cases import language_case, make_cases, passed
from repair_ray.stages.edit import chosen_by
from repair_ray.stages.graph import Progress, Step, quiet, run_graph
from repair_ray.stages.negatives import negative_row, spread
from repair_ray.stages.pools import cpu_pool, pool_of
from repair_ray.stages.rows import Row, RowStage
from repair_ray.stages.select import SelectCandidate, within_quota


class _Drafting(RowStage):
    """A strategy of another package, by its name, and what its drafts are drawn from."""

    def setup(self, name: str, settings: dict[str, Any], seed: int, per_caption: int = 0) -> None:
        self._strategy, self._name, self._seed = strategy(name, settings), name, seed
        self._per_caption = per_caption

    def _drafts(self, case: Case, identity: str) -> list[Draft]:
        drafts = list(self._strategy.drafts(case, tables.edit_seed(self._seed, identity, 0)))
        for draft in drafts:
            if not isinstance(draft, Draft):
                raise TypeError(f"the strategy {self._name!r} gives {type(draft).__name__}, not Draft")
        return drafts


class DraftCorrections(_Drafting):
    """The drafts of each failure of an image, as candidates; the query's own picture for one of a caption."""

    def process(self, rows: list[Row]) -> list[Row]:
        return [self._draft(row) for row in rows]

    def _draft(self, row: Row) -> Row:
        if row["direction"] == "t2i":
            return {**row, "kind": tables.PAIRED, "candidates": []}
        drafts = self._drafts(language_case(row), row["failure_id"])
        return {**row, "kind": tables.EDITED, "candidates": [candidate(draft) for draft in drafts]}


class DraftNegatives(_Drafting):
    """The drafts of each caption of a picture: an `EDITS` row each, and one for a caption that has none, with why."""

    def process(self, rows: list[Row]) -> list[Row]:
        return [made for row in rows for caption in row["captions"] for made in self._of_caption(row, caption)]

    def failed(self, row: Row, reason: str) -> Row:
        return {**negative_row(row, row["captions"][0], None), "status": tables.ERROR, "reason": reason}

    def _of_caption(self, row: Row, caption: Row) -> list[Row]:
        known = tuple(row["group_captions"])
        case = Case("i2t", known, known, candidate_text=caption["text"])
        taken = {text_key(text) for text in known}
        made: list[Row] = []
        reason = "no draft"
        for draft in self._drafts(case, caption["caption_id"]):
            key = text_key(draft.text)
            if draft.problem is not None or key in taken or not key:
                reason = draft.problem or "a draft is empty, written twice, or a caption of the picture"
                continue
            taken.add(key)
            made.append({**negative_row(row, caption, draft.text), "text": draft.text, "status": tables.OK})
        if not made:
            return [{**negative_row(row, caption, None), "status": tables.REJECTED, "reason": reason}]
        return made[: self._per_caption]


def draft_corrections(
    run: Run,
    config: Config,
    product: str,
    verdicts: str,
    failures: str,
    embeddings: str,
    spec: RetrieverSpec,
    progress: Progress = quiet,
) -> None:
    """Make an `edits` table by a strategy that works on failures, selected as edits are."""

    @cache
    def cases() -> pa.Table:
        rows = passed(run, failures, verdicts, audit=config.selection.audit)
        return make_cases(run, rows, config.mining.split, embeddings)

    settings = {**_settings(config), "selection": config.selection.model_dump(mode="json", exclude={"pool"})}
    run_graph(
        run,
        product,
        Recipe(settings, (failures, verdicts, embeddings)),
        tables.EDITS,
        [
            Step(DraftCorrections, DRAFTS, _arguments(config), *pool_of(config, "edit")),
            Step(SelectCandidate, tables.EDITS.schema, *chosen_by(run, config, spec)),
        ],
        cases,
        faults=config.faults,
        cluster=config.cluster,
        finish=lambda table: within_quota(table, config.selection),
        facts={"made_from": {"failures": failures, "verdicts": verdicts}},
        progress=progress,
    )


def draft_negatives(
    run: Run, config: Config, product: str, splits: tuple[str, ...], progress: Progress = quiet
) -> None:
    """Make an `edits` table of negative captions by a strategy that works on captions, within `mining.budget`."""
    per_caption, budget = config.negatives.per_caption, config.mining.budget
    settings = {
        **_settings(config),
        "splits": list(splits),
        "negatives": {"per_caption": per_caption},
        "mining": {"budget": budget},
    }
    run_graph(
        run,
        product,
        Recipe(settings, (IMAGES, CAPTIONS)),
        tables.NEGATIVES,
        [
            Step(
                DraftNegatives,
                tables.NEGATIVES.schema,
                {**_arguments(config), "per_caption": per_caption},
                *cpu_pool(config),
            )
        ],
        lambda: captioned(run, splits),
        faults=config.faults,
        cluster=config.cluster,
        finish=lambda table: spread(table, budget, config.seed),
        progress=progress,
    )


def _settings(config: Config) -> dict[str, Any]:
    return {
        "strategy": config.strategy,
        "strategy_settings": config.strategy_settings,
        "seed": config.seed,
        **identity(STRATEGIES, config.strategy),
    }


def _arguments(config: Config) -> dict[str, Any]:
    return {"name": config.strategy, "settings": config.strategy_settings, "seed": config.seed}
