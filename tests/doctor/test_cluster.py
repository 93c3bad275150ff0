"""Does a run fit on the nodes? By hand, and an address where nothing listens. None of these starts Ray."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from repair_ray.config import Config, parse_config
from repair_ray.doctor.cluster import Node, check_cluster, check_pools

WORLD = {"world": {"train": 4, "validation": 2, "test": 2}}
SMALL = Node("a", cpus=4, gpus=0, memory=2**33)
TWO_OF_ONE_GPU = [Node(name, cpus=4, gpus=1, memory=2**33) for name in "ab"]


def config(**sections: Any) -> Config:
    return parse_config({"data": WORLD, "edit": {"image_editor": "scene"}, **sections})


@pytest.mark.parametrize(
    ("sections", "nodes", "expected"),
    [
        # The editing actors and those that score hold their CPUs together: 3 + 3 + 1.
        ({"pool": {"actors": 3}}, [SMALL], ["round-1/edits needs 7 CPUs and the cluster has 4 CPUs"]),
        (
            {"edit": {"image_editor": "none", "pool": {"num_gpus": 2, "actors": 1}}},
            TWO_OF_ONE_GPU,
            ["round-1/edits: the nodes have room for 0 of 1 actors of 1 CPUs and 2 GPUs"],
        ),
        (
            {"language": {"backend": "vllm", "model": "m", "pool": {"num_gpus": 1, "actors": 3}}},
            TWO_OF_ONE_GPU,
            ["round-1/verdicts_answers needs 3 GPUs and the cluster has 2 GPUs"],
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
        # One process that starts both workers has to have both GPUs on its node.
        (
            {
                "language": {
                    "backend": "vllm",
                    "model": "m",
                    "engine": {"arguments": {"tensor_parallel_size": 2, "distributed_executor_backend": "mp"}},
                    "pool": {"num_gpus": 2},
                }
            },
            TWO_OF_ONE_GPU,
            ["round-1/verdicts_answers: the nodes have room for 0 of 1 actors of 1 CPUs and 2 GPUs"],
        ),
        # An endpoint's actors need no GPU here, whatever their pool says.
        ({"language": {"backend": "openai", "model": "m", "pool": {"num_gpus": 8}}}, [SMALL], []),
        (
            {"training": {"use_gpu": True, "workers": 2}},
            [SMALL],
            ["round-1/training needs 2 GPUs and the cluster has 0 GPUs"],
        ),
        ({"training": {"workers": 8}}, [SMALL], []),
        ({"base": {"workers": 16}}, [SMALL], ["base/training needs 8 CPUs and the cluster has 4 CPUs"]),
        # Nothing is edited: nobody waits for the editing actors.
        ({"strategy": "vanilla", "edit": {"pool": {"actors": 9}}}, [SMALL], []),
    ],
    ids=[
        "cpus",
        "one node",
        "engines",
        "one engine on two nodes",
        "one engine on one node",
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


def test_labels_choose_nodes() -> None:
    labelled = Node("c", cpus=4, gpus=1, memory=2**33, labels={"pool": "pictures"})
    pool = {"actors": 1, "num_gpus": 1, "labels": {"pool": "pictures"}}
    assert [finding.state for finding in check_pools(config(pool=pool), [SMALL, labelled])] == ["ok"]
    found = check_pools(config(pool=pool), TWO_OF_ONE_GPU)
    assert "there are no nodes for its actors with pool=pictures" in found[0].found


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
