"""What a run of a config asks of the cluster, stage by stage in the order in which it runs, and whether that fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from repair_ray.config import Config, LanguageConfig, OptimisationConfig, PoolConfig, WorldConfig
from repair_ray.run import IMAGES, Run
from repair_ray.scheduling.asks import (
    BLOCKS_IN_FLIGHT,
    ENGINE_BLOCKS_IN_FLIGHT,
    FEEDING,
    of_engine,
    of_pool,
    of_training,
)
from repair_ray.scheduling.fit import MIB, Ask, Node, Problem, capacity, problem_of, totals
from repair_ray.stages.pools import Pool, cpu_pool, key_of, main_pool, match_pool, pool_of
from repair_ray.stages.products import BASE, OF_EDITS, OF_FAILURES, OF_VERDICTS, ROUND, TEACHER, agree, round_place

CAPTIONS_A_SCENE = 5


@dataclass(frozen=True)
class Workers:
    """One pool of a stage, or the workers of a training.

    `holds` is what they hold together; `rows_per_block` and `blocks_in_flight` are None in training.
    """

    key: str
    holds: Ask
    most: int
    rows_per_block: int | None = None
    blocks_in_flight: int | None = None


@dataclass(frozen=True)
class Stage:
    """One product of a run that is made by actors; `rows` is None where that is not known before."""

    name: str
    workers: tuple[Workers, ...]
    kind: Literal["graph", "training"] = "graph"
    rows: int | None = None

    @property
    def asks(self) -> list[Ask]:
        """All that it holds at the same time."""
        asks = [workers.holds for workers in self.workers]
        return [*asks, FEEDING] if self.kind == "graph" else asks


@dataclass(frozen=True)
class Plan:
    """The stages of a run, the nodes it was held against, and what cannot be placed, by stage."""

    stages: list[Stage]
    nodes: list[Node]
    problems: dict[str, Problem] = field(default_factory=dict)

    @property
    def causes(self) -> dict[str, Problem]:
        """The problems, once for each setting, by the first stage that has it."""
        found: dict[str, tuple[str, Problem]] = {}
        for name, problem in self.problems.items():
            found.setdefault(problem.key, (name, problem))
        return dict(found.values())

    def as_json(self) -> dict[str, Any]:
        """The plan as plain values."""
        return {
            "nodes": [
                {
                    "name": node.name,
                    "there": node.there,
                    "cpus": node.cpus,
                    "gpus": node.gpus,
                    "memory_mb": round(node.memory / MIB),
                    "accelerators": sorted(node.accelerators),
                }
                for node in self.nodes
            ],
            "has": _plain(capacity(self.nodes)),
            "stages": [self._stage(stage) for stage in self.stages],
            "fits": not self.problems,
        }

    def bottleneck(self, stage: Stage) -> tuple[str, float] | None:
        """The resource of which a stage holds the largest share, and that share; above 1 where there is too little."""
        have = capacity(self.nodes)
        shares = {
            name: need / have[name] if have[name] else float("inf") for name, need in totals(stage.asks).items() if need
        }
        return max(shares.items(), key=lambda item: item[1], default=None)

    def _stage(self, stage: Stage) -> dict[str, Any]:
        problem, most = self.problems.get(stage.name), self.bottleneck(stage)
        return {
            "name": stage.name,
            "kind": stage.kind,
            "rows": stage.rows,
            "pools": [
                {
                    "key": workers.key,
                    "actors": workers.holds.count,
                    "max_actors": workers.most,
                    "num_cpus": workers.holds.cpus,
                    "num_gpus": workers.holds.gpus,
                    "memory_mb": round(workers.holds.memory / MIB),
                    "accelerator_type": workers.holds.accelerator,
                    "labels": dict(workers.holds.labels),
                    "rows_per_block": workers.rows_per_block,
                    "blocks_in_flight": workers.blocks_in_flight,
                }
                for workers in stage.workers
            ],
            "holds": _plain(totals(stage.asks)),
            "bottleneck": None if most is None else most[0],
            "problem": None if problem is None else {"fact": problem.fact, "key": problem.key, "do": problem.advice},
        }


def plan(config: Config, nodes: Sequence[Node]) -> Plan:
    """Hold a config against nodes."""
    stages = stages_of(config, nodes)
    found = {stage.name: problem_of(stage.name, stage.asks, nodes) for stage in stages}
    return Plan(stages, list(nodes), {name: problem for name, problem in found.items() if problem is not None})


def stages_of(config: Config, nodes: Sequence[Node]) -> list[Stage]:
    """The stages of a run and of its controls, each product once, as `rounds` makes them."""
    made: dict[str, Stage] = {}
    for stage in _Run(config, nodes).stages():
        made.setdefault(stage.name, stage)
    run = Run(config.run_dir)
    return [_with_rows(stage, run) for stage in made.values()]


class _Run:
    """Walks through rounds as `rounds.Round` does."""

    def __init__(self, config: Config, nodes: Sequence[Node]) -> None:
        self.config, self.nodes = config, nodes
        self._items = _Items(config.data.world)
        self._home = ROUND

    def stages(self) -> Iterator[Stage]:
        config = self.config
        yield _graph(IMAGES, pool_of(config, "data"), rows=self._items.images("train", "validation", "test"))
        if config.base is not None:
            yield self._training(BASE, config.base, "base")
        splits = dict.fromkeys((config.mining.split, config.evaluation.split))
        yield _graph(f"{ROUND}/embeddings", main_pool(config), rows=self._items.all(*splits))
        yield from self._variant(ROUND, config)
        for number in range(2, config.rounds.number + 1):
            yield _graph(f"{round_place(number)}/embeddings", main_pool(config), rows=self._items.all(*splits))
            yield from self._variant(round_place(number), config.of_round(number), round_place(number))
        for name in config.control_names:
            yield from self._variant(f"controls/{name}", config.control(name))

    def _variant(self, place: str, config: Config, home: str = ROUND) -> Iterator[Stage]:
        """`home`: the round whose products it takes where it would make the same."""
        self._home = home
        if config.strategy in ("negclip", "san", "triplet"):
            yield from self._contrast(self._shared("edits", place, config, OF_EDITS), config)
        elif config.strategy == "paraphrase":
            edits = self._shared("edits", place, config, OF_EDITS)
            yield from _asked(config, config.edit.language or config.language, edits)
            yield _graph(edits, cpu_pool(config))
        elif config.works_on == "captions":
            edits = self._shared("edits", place, config, OF_EDITS)
            yield _graph(edits, cpu_pool(config), rows=self._items.images(*self.config.trained_splits))
        elif config.strategy != "vanilla":
            yield from self._repair(place, config)
        if config.objective.taught and config.teacher is not None and config.teacher.retriever is not None:
            yield _graph(TEACHER, pool_of(config, "teacher"), rows=self._items.all(*self.config.trained_splits))
        yield self._training(f"{place}/training", config.training, "training")
        yield _graph(f"{place}/evaluation", main_pool(config), rows=self._items.all(self.config.evaluation.split))

    def _repair(self, place: str, config: Config) -> Iterator[Stage]:
        failures = self._shared("failures", place, config, OF_FAILURES)
        yield from self._mining(failures, config)
        verdicts = self._shared("verdicts", place, config, OF_VERDICTS)
        if config.strategy == "error_agnostic":
            verdicts = self._shared("random_verdicts", place, config, (*OF_VERDICTS, "strategy"))
        yield from _asked(config, config.audit.language or config.language, verdicts)
        yield _graph(verdicts, cpu_pool(config))
        if config.strategy != "mined":
            edits = self._shared("edits", place, config, OF_EDITS)
            if config.works_on is None:
                yield from _asked(config, config.edit.language or config.language, edits)
            yield _graph(edits, pool_of(config, "edit"), pool_of(config, "selection"))

    def _mining(self, failures: str, config: Config) -> Iterator[Stage]:
        kinds = {"i2t": self._items.images, "t2i": self._items.captions}
        queries = [kinds[direction](config.mining.split) for direction in config.mining.directions]
        pool, key = pool_of(config, "mining")
        pools = [Pool(part, key) for part in config.mining.pools(pool, config.mining.shards or 1)]
        if not config.mining.folds:
            known = [count for count in queries if count is not None]
            yield _graph(failures, *pools, rows=sum(known) if len(known) == len(queries) else None)
        for fold in range(config.mining.folds):
            training, key = (self.config.base, "base") if self.config.base else (self.config.training, "training")
            yield self._training(f"folds/{fold}/training", training, key)
            yield _graph(f"folds/{fold}/embeddings", main_pool(config), rows=self._items.all(config.mining.split))
            yield _graph(f"{failures.rpartition('/')[0]}/folds/{fold}/failures", *pools)

    def _contrast(self, edits: str, config: Config) -> Iterator[Stage]:
        pictured = config.strategy == "triplet"
        negatives, rows = f"{edits}_negatives" if pictured else edits, self._items.images(*self.config.trained_splits)
        if config.strategy != "negclip":
            encodes = config.negatives.needs != "forms"
            matches = f"{negatives.rpartition('/')[0]}/matches"
            yield _graph(matches, match_pool(config, encodes=encodes), rows=rows)
        yield _graph(negatives, cpu_pool(config), rows=rows)
        if pictured:
            pictures = f"{edits}_pictures"
            yield from _asked(config, config.edit.language or config.language, pictures)
            yield _graph(pictures, pool_of(config, "edit"), cpu_pool(config))

    def _shared(self, name: str, place: str, config: Config, sections: tuple[str, ...]) -> str:
        return f"{self._home if agree(config, self.config, sections) else place}/{name}"

    def _training(self, name: str, training: OptimisationConfig, key: str) -> Stage:
        holds = of_training(training, self.nodes, key)
        return Stage(name, (Workers(key, holds, holds.count),), "training")


def _graph(name: str, *pools: Pool, rows: int | None = None) -> Stage:
    return Stage(name, tuple(_workers(pool, key, of_pool(pool, key)) for pool, key in pools), rows=rows)


def _workers(pool: PoolConfig, key: str, holds: Ask, in_flight: int = BLOCKS_IN_FLIGHT) -> Workers:
    most = holds.count * pool.most // pool.actors
    return Workers(key, holds, most, pool.rows_per_block, pool.blocks_in_flight or in_flight)


def _asked(config: Config, language: LanguageConfig, product: str) -> Iterator[Stage]:
    """The graph that has questions answered; none where rules answer them."""
    if not language.asks:
        return
    section = key_of(config, language)
    key, pool = f"{section}.pool", language.pool
    if language.backend == "openai":
        pool = pool.on_cpu()
        yield Stage(f"{product}_answers", (_workers(pool, key, of_pool(pool, key)),))
    else:
        holds = of_engine(language, section)
        yield Stage(f"{product}_answers", (_workers(pool, key, holds, ENGINE_BLOCKS_IN_FLIGHT),))


class _Items:
    """How many pictures and captions the demo's world has; None of other data, which would have to be read."""

    def __init__(self, world: WorldConfig | None) -> None:
        self._world = world

    def images(self, *splits: str) -> int | None:
        return None if self._world is None else sum(getattr(self._world, split) for split in splits)

    def captions(self, *splits: str) -> int | None:
        images = self.images(*splits)
        return None if images is None else CAPTIONS_A_SCENE * images

    def all(self, *splits: str) -> int | None:
        images = self.images(*splits)
        return None if images is None else (1 + CAPTIONS_A_SCENE) * images


def _with_rows(stage: Stage, run: Run) -> Stage:
    """A stage that the run has made already tells its rows."""
    made = run.manifest(stage.name) or {}
    rows = made.get("input_rows", stage.rows) if stage.kind == "graph" else stage.rows
    return Stage(stage.name, stage.workers, stage.kind, rows)


def _plain(amounts: dict[str, float]) -> dict[str, float]:
    return {"cpus": amounts["CPU"], "gpus": amounts["GPU"], "memory_mb": round(amounts["memory"] / MIB)}
