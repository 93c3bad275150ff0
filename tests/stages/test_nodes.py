"""What a stage takes of the cluster and what is missing, with labels that choose nodes."""

from __future__ import annotations

from typing import Any

from repair_ray.config import PoolConfig
from repair_ray.stages.nodes import bundles, missing

LANGUAGE = PoolConfig(actors=2, num_cpus=2, num_gpus=1, labels={"pool": "language"})
PLAIN = PoolConfig(actors=3, num_cpus=1)


def node(cpus: float, gpus: float = 0.0, alive: bool = True, **labels: str) -> dict[str, Any]:
    resources = {"CPU": cpus, "GPU": gpus} if gpus else {"CPU": cpus}
    return {"Alive": alive, "Resources": resources, "Labels": labels}


def test_all_is_there() -> None:
    assert missing([LANGUAGE, PLAIN], [node(4), node(4, 2, pool="language", zone="a")]) is None


def test_the_first_lack_is_told() -> None:
    # 4 + 3, and one for what feeds them.
    assert missing([LANGUAGE, PLAIN], [node(7, 2, pool="language")]) == "8 CPUs but the cluster has 7"
    assert missing([LANGUAGE], [node(8)]) == "2 GPUs but the cluster has 0"
    assert missing([PLAIN], []) == "4 CPUs but the cluster has 0"


def test_nodes_without_the_label_do_not_count() -> None:
    nodes = [node(8, 8), node(4, 1, pool="language"), node(4, 1, alive=False, pool="language")]
    assert missing([LANGUAGE], nodes) == "2 GPUs on nodes with pool=language but the cluster has 1"
    # What feeds the pool may run on any node.
    assert missing([LANGUAGE], [node(4, 2, pool="language"), node(1)]) is None
    assert missing([LANGUAGE], [node(3, 2, pool="language"), node(2)]) == (
        "4 CPUs on nodes with pool=language but the cluster has 3"
    )


def test_what_the_autoscaler_is_asked_for() -> None:
    none = PoolConfig(actors=2, num_cpus=0)
    assert bundles([LANGUAGE, PLAIN, none]) == [
        *[({"CPU": 2.0, "GPU": 1.0}, {"pool": "language"})] * 2,
        *[({"CPU": 1.0}, {})] * 3,
        ({"CPU": 1.0}, {}),
    ]
