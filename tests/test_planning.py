"""The plan of a run: its stages in the order of the run, what each holds, and what is told of it. No Ray is started."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from repair_ray.config import MiningConfig, PoolConfig, parse_config
from repair_ray.planning import Plan, plan
from repair_ray.report.plan import nodes_table, stages_table
from repair_ray.run import IMAGES, Recipe, Run
from repair_ray.scheduling.fit import Node

GPUS = Node("a", 16, 4, 2**36, accelerators=frozenset({"H100"}))
WORLD = {"data": {"world": {"train": 10, "validation": 4, "test": 6}}, "retriever": {"model": "tiny-64"}}


def planned(nodes: tuple[Node, ...] = (GPUS,), **settings: Any) -> Plan:
    return plan(parse_config({**WORLD, "output": "/nowhere", "controls": "none", **settings}), nodes)


def names(made: Plan) -> list[str]:
    return [stage.name for stage in made.stages]


def test_a_round_of_repair_with_models() -> None:
    made = planned(
        base={"steps": 2},
        language={"backend": "vllm", "model": "m", "pool": {"num_gpus": 1}},
        edit={"image_editor": "scene", "pool": {"actors": 2, "num_gpus": 1}},
        pool={"num_gpus": 0.5, "max_actors": 3, "blocks_in_flight": 4},
    )
    assert names(made) == [
        "data/images",
        "base/training",
        "round-1/embeddings",
        "round-1/failures",
        "round-1/verdicts_answers",
        "round-1/verdicts",
        "round-1/edits_answers",
        "round-1/edits",
        "round-1/training",
        "round-1/evaluation",
    ]
    # A scene is a picture and five captions: 20 pictures; 16 scenes of train and test; 10 pictures and 50 captions ask.
    assert [stage.rows for stage in made.stages] == [20, None, 96, 60, None, None, None, None, None, 36]
    edits = made.as_json()["stages"][7]
    assert [(pool["key"], pool["actors"], pool["max_actors"]) for pool in edits["pools"]] == [
        ("edit.pool", 2, 2),
        ("pool", 1, 3),
    ]
    # 2 + 1 actors of a CPU each, and a CPU for the tasks that feed them; 2 + 0.5 of 4 GPUs are the larger share.
    assert (edits["holds"]["cpus"], edits["holds"]["gpus"], edits["bottleneck"]) == (4.0, 2.5, "GPU")
    assert made.stages[2].workers[0].blocks_in_flight == 4
    assert made.stages[4].workers[0].blocks_in_flight == 16


def test_controls_add_what_they_do_not_share() -> None:
    made = planned(
        controls=["vanilla_equal_compute", "mined", "error_agnostic"],
        variants={"deeper": {"mining": {"k": 9}}, "elsewhere": {"mining": {"pool": {"actors": 2}}}},
    )
    after = names(made)[names(made).index("round-1/evaluation") + 1 :]
    assert after == [
        *("controls/vanilla_equal_compute/training", "controls/vanilla_equal_compute/evaluation"),
        *("controls/mined/training", "controls/mined/evaluation"),
        *("controls/error_agnostic/random_verdicts", "controls/error_agnostic/edits"),
        *("controls/error_agnostic/training", "controls/error_agnostic/evaluation"),
        *("controls/deeper/failures", "controls/deeper/verdicts", "controls/deeper/edits"),
        *("controls/deeper/training", "controls/deeper/evaluation"),
        # Another pool makes the same failures.
        *("controls/elsewhere/training", "controls/elsewhere/evaluation"),
    ]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"strategy": "vanilla"}, []),
        ({"strategy": "negclip", "objective": {"fine_grained": True}}, ["edits"]),
        ({"strategy": "san", "objective": {"fine_grained": True}}, ["matches", "edits"]),
        (
            {"strategy": "triplet", "objective": {"fine_grained": True}, "edit": {"image_editor": "scene"}},
            ["matches", "edits_negatives", "edits_pictures"],
        ),
        (
            {"strategy": "paraphrase", "language": {"backend": "openai", "model": "m"}},
            ["edits_answers", "edits"],
        ),
    ],
)
def test_what_strategies_make(settings: dict[str, Any], expected: list[str]) -> None:
    made = planned(**settings)
    middle = names(made)[2:-2]
    assert middle == [f"round-1/{name}" for name in expected]


def test_folds_are_trained_and_mined_one_by_one() -> None:
    made = planned(mining={"folds": 2})
    assert names(made)[2:8] == [
        *("folds/0/training", "folds/0/embeddings", "round-1/folds/0/failures"),
        *("folds/1/training", "folds/1/embeddings", "round-1/folds/1/failures"),
    ]


def test_rows_of_files_come_from_what_the_run_has_made(tmp_path: Any) -> None:
    config = parse_config({"data": {"path": "x"}, "output": str(tmp_path), "controls": "none"})
    assert plan(config, [GPUS]).stages[0].rows is None
    run = Run(config.run_dir)
    run.path(IMAGES).mkdir(parents=True)
    run.finish(IMAGES, Recipe({}), 1.0, input_rows=123)
    assert plan(config, [GPUS]).stages[0].rows == 123


def test_problems_come_once_for_each_setting() -> None:
    made = planned((Node("a", 4, 0, 2**33),), pool={"num_gpus": 1}, training={"use_gpu": True})
    assert set(made.problems) == {"round-1/embeddings", "round-1/edits", "round-1/training", "round-1/evaluation"}
    assert list(made.causes) == ["round-1/embeddings", "round-1/training"]
    told = made.as_json()
    assert told["fits"] is False
    assert next(stage["problem"]["key"] for stage in told["stages"] if stage["problem"]) == "pool.actors"


def test_the_tables_say_all_of_it() -> None:
    to_come = Node("h100s", 16, 4, 2**36, accelerators=frozenset({"H100"}), there=False)
    made = planned(
        (Node("head", 4, 0, 2**33), to_come, to_come), pool={"num_gpus": 1, "max_actors": 4, "memory_mb": 512}
    )
    out = io.StringIO()
    console = Console(file=out, width=120)
    console.print(nodes_table(made.as_json()))
    console.print(stages_table(made.as_json()))
    told = out.getvalue()
    assert "h100s, to be started       2     16      4       H100   64.0 GiB" in told
    (line,) = [line for line in told.splitlines() if line.startswith("  embeddings")]
    for part in ("1-4 of pool", "1 CPU, 1 GPU, 0.5 GiB", "256 x 2", "GPU 1/8, CPU 2/36, 0.5 GiB of 136.0 GiB", "96"):
        assert part in line


def test_a_split_gallery_takes_actors_of_its_own() -> None:
    def pools(**mining: Any) -> list[tuple[str, int, float, float]]:
        made = planned(pool={"actors": 4, "num_cpus": 2, "num_gpus": 1}, mining=mining)
        (mined,) = [stage for stage in made.stages if stage.name == "round-1/failures"]
        return [(pool.key, pool.holds.count, pool.holds.cpus, pool.holds.gpus) for pool in mined.workers]

    assert pools() == [("pool", 4, 2, 0)]
    # Two that merge, with a quarter of a CPU each, and the parts.
    assert pools(shards=3) == [("pool", 2, 0.25, 0), ("pool", 3, 2, 0)]
    assert pools(shards=3, pool={"num_cpus": 1}) == [("mining.pool", 2, 0.25, 0), ("mining.pool", 3, 1, 0)]
    # Who merges runs no search: on a node of any kind, and as many of them whatever the pool may grow to.
    grown = mining_pools(num_gpus=1, accelerator_type="H100", max_actors=9)
    assert [(pool.actors, pool.most, pool.accelerator_type) for pool in grown] == [(2, 2, None), (3, 3, "H100")]


def mining_pools(**pool: Any) -> tuple[PoolConfig, ...]:
    return MiningConfig().pools(PoolConfig(**pool), 3)
