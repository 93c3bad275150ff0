"""Does a run fit on the nodes? By hand, and an address where nothing listens. None of these starts Ray."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from repair_ray.config import Config, PoolConfig, parse_config
from repair_ray.doctor.cluster import Node, check_cluster, check_pools
from repair_ray.stages.nodes import demand, shortage

WORLD = {"world": {"train": 4, "validation": 2, "test": 2}}
SMALL = Node("a", cpus=4, gpus=0, memory=2**33)
TWO_OF_ONE_GPU = [Node(name, cpus=4, gpus=1, memory=2**33) for name in "ab"]


def config(**sections: Any) -> Config:
    return parse_config({"data": WORLD, "edit": {"image_editor": "scene"}, **sections})


def test_what_a_graph_takes() -> None:
    pools = [PoolConfig(actors=3, num_cpus=0.5, num_gpus=0.25), PoolConfig(actors=2, num_cpus=2, num_gpus=1)]
    # 1.5 + 4, and one for the tasks that feed them; 0.75 + 2.
    assert demand(pools) == {"CPU": 6.5, "GPU": 2.75}
    assert shortage(demand(pools), {"CPU": 6.5, "GPU": 2.75}) is None
    assert shortage(demand(pools), {"CPU": 6.0, "GPU": 8.0}) == ("CPU", 6.5, 6.0)
    assert shortage(demand(pools), {"CPU": 8.0}) == ("GPU", 2.75, 0.0)


@pytest.mark.parametrize(
    ("sections", "nodes", "expected"),
    [
        # The editing actors and those that score hold their CPUs together: 3 + 3 + 1.
        ({"pool": {"actors": 3}}, [SMALL], ["edits needs 7 CPUs and the cluster has 4"]),
        (
            {"edit": {"image_editor": "none", "pool": {"num_gpus": 2, "actors": 1}}},
            TWO_OF_ONE_GPU,
            ["edits: the nodes have room for 0 of 1 actors of 1 CPUs and 2 GPUs"],
        ),
        (
            {"language": {"backend": "vllm", "model": "m", "pool": {"num_gpus": 1, "actors": 3}}},
            TWO_OF_ONE_GPU,
            ["answers of language needs 3 GPUs and the cluster has 2"],
        ),
        # Of an engine that is spread over two GPUs, each worker takes its own.
        (
            {
                "language": {
                    "backend": "vllm",
                    "model": "m",
                    "engine": {"arguments": {"tensor_parallel_size": 2}},
                    "pool": {"num_gpus": 2},
                }
            },
            TWO_OF_ONE_GPU,
            [],
        ),
        # An endpoint's actors need no GPU here, whatever their pool says.
        ({"language": {"backend": "openai", "model": "m", "pool": {"num_gpus": 8}}}, [SMALL], []),
        ({"training": {"use_gpu": True, "workers": 2}}, [SMALL], ["training needs 2 GPUs and the cluster has 0"]),
        ({"training": {"workers": 8}}, [SMALL], []),
        ({"base": {"workers": 16}}, [SMALL], ["base needs 8 CPUs and the cluster has 4"]),
        # Nothing is edited: nobody waits for the editing actors.
        ({"strategy": "vanilla", "edit": {"pool": {"actors": 9}}}, [SMALL], []),
    ],
    ids=[
        "cpus",
        "one node",
        "engines",
        "one engine on two nodes",
        "endpoint",
        "training on GPUs",
        "small shares",
        "base",
        "no edits",
    ],
)
def test_pools_against_nodes(sections: dict[str, Any], nodes: list[Node], expected: list[str]) -> None:
    found = check_pools(config(**sections), nodes)
    assert [finding.found for finding in found if finding.state == "failed"] == expected
    assert expected or [finding.state for finding in found] == ["ok"]


def test_a_cluster_that_grows_is_no_failure() -> None:
    (finding,) = check_pools(config(pool={"actors": 3}, faults={"nodes_wait_s": 600}), [SMALL])
    assert finding.state == "warning"
    assert finding.found == "edits needs 7 CPUs and the cluster has 4; the run waits 600 s for its autoscaler"


def test_labels_choose_nodes() -> None:
    labelled = Node("c", cpus=4, gpus=1, memory=2**33, labels={"pool": "pictures"})
    pool = {"actors": 1, "num_gpus": 1, "labels": {"pool": "pictures"}}
    assert [finding.state for finding in check_pools(config(pool=pool), [SMALL, labelled])] == ["ok"]
    found = check_pools(config(pool=pool), TWO_OF_ONE_GPU)
    assert "room for 0 of 1 actors of 1 CPUs and 1 GPUs, with pool=pictures" in found[0].found


def test_fractions_of_gpus_share_a_node() -> None:
    pool = {"actors": 10, "num_cpus": 0.1, "num_gpus": 0.1}
    nodes = [Node("a", cpus=4, gpus=1, memory=2**33)]
    assert [finding.state for finding in check_pools(config(pool=pool), nodes)] == ["ok"]


def test_an_address_where_nothing_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    cluster = check_cluster(config())
    assert cluster.nodes == []
    (finding,) = cluster.findings
    assert finding.state == "failed"
    assert f"RAY_ADDRESS=127.0.0.1:{port}" in finding.found and "refused" in finding.found
    assert "correct RAY_ADDRESS" in finding.advice
