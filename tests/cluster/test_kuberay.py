"""The Kubernetes manifests: valid by KubeRay's own schemas, and consistent in themselves and with the jobs."""

from __future__ import annotations

import copy
import shlex
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from repair_ray.config import load_config
from repair_ray.doctor.cluster import Node, check_pools
from tests.cluster.manifests import ROOT, documents, pods, problems, quantity, strict, validator

SECRET = ("KEY", "TOKEN", "PASSWORD", "SECRET")


@pytest.fixture(scope="module")
def ray_cluster() -> dict[str, Any]:
    return documents("raycluster.yaml")["RayCluster"]


@pytest.fixture(scope="module")
def ray_job() -> dict[str, Any]:
    return documents("rayjob.yaml")["RayJob"]


@pytest.fixture(scope="module")
def clusters(ray_cluster: dict[str, Any], ray_job: dict[str, Any]) -> list[dict[str, Any]]:
    return [ray_cluster["spec"], ray_job["spec"]["rayClusterSpec"]]


@pytest.fixture(scope="module")
def of_clusters() -> Draft202012Validator:
    return validator("rayclusters")


@pytest.fixture(scope="module")
def of_jobs() -> Draft202012Validator:
    return validator("rayjobs")


@pytest.mark.shared_data
def test_the_cluster_is_valid(of_clusters: Draft202012Validator, ray_cluster: dict[str, Any]) -> None:
    assert problems(of_clusters, ray_cluster) == []


@pytest.mark.shared_data
def test_the_job_is_valid(of_jobs: Draft202012Validator, ray_job: dict[str, Any]) -> None:
    assert problems(of_jobs, ray_job) == []


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("where", "key", "value", "told"),
    [
        (("spec",), "autoscalerOption", {}, "autoscalerOption"),
        (("spec", "workerGroupSpecs", 0), "maxReplica", 3, "maxReplica"),
        (("spec", "workerGroupSpecs", 0), "maxReplicas", "three", "maxReplicas"),
        (("spec", "autoscalerOptions"), "upscalingMode", "Fast", "upscalingMode"),
        (("spec", "headGroupSpec", "rayStartParams"), "num-cpus", 0, "num-cpus"),
        (("spec", "headGroupSpec", "template", "spec", "containers", 0), "volumeMount", [], "volumeMount"),
        (("spec", "headGroupSpec", "template", "spec", "volumes", 1, "emptyDir"), "sizeLimt", "1Gi", "sizeLimt"),
    ],
)
def test_a_broken_cluster_is_found(
    of_clusters: Draft202012Validator,
    ray_cluster: dict[str, Any],
    where: tuple[str | int, ...],
    key: str,
    value: Any,
    told: str,
) -> None:
    broken = copy.deepcopy(ray_cluster)
    node: Any = broken
    for part in where:
        node = node[part]
    node[key] = value
    found = problems(of_clusters, broken)
    assert found and all(told in problem for problem in found)


@pytest.mark.shared_data
def test_a_broken_job_is_found(of_jobs: Draft202012Validator, ray_job: dict[str, Any]) -> None:
    broken = copy.deepcopy(ray_job)
    broken["spec"]["backofLimit"] = broken["spec"].pop("backoffLimit")
    del broken["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]
    found = " ".join(problems(of_jobs, broken))
    assert "backofLimit" in found and "'template' is a required property" in found


def test_strict_closes_objects_and_takes_numbers_or_text() -> None:
    made = strict(
        {
            "type": "object",
            "properties": {
                "free": {"type": "object", "additionalProperties": {"type": "string"}},
                "kept": {"type": "object", "properties": {}, "x-kubernetes-preserve-unknown-fields": True},
                "either": {"x-kubernetes-int-or-string": True, "type": "string"},
            },
        }
    )
    check = Draft202012Validator(made)
    assert check.is_valid({"free": {"any": "x"}, "kept": {"any": 1}, "either": 3})
    assert check.is_valid({"either": "3Gi"}) and not check.is_valid({"either": 1.5})
    assert not check.is_valid({"other": 1}) and not check.is_valid({"free": {"any": 1}})


def test_every_node_sees_the_shared_folder(clusters: list[dict[str, Any]]) -> None:
    claim = documents("raycluster.yaml")["PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    for spec in clusters:
        for name, group in pods(spec).items():
            pod = group["template"]["spec"]
            mounted = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
            volumes = {volume["name"]: volume for volume in pod["volumes"]}
            shared = volumes[mounted["/shared"]]["persistentVolumeClaim"]["claimName"]
            assert shared == claim["metadata"]["name"], name


def test_the_object_store_fits_its_memory_and_spills(clusters: list[dict[str, Any]]) -> None:
    for spec in clusters:
        for name, group in pods(spec).items():
            pod, given = group["template"]["spec"], group["rayStartParams"]
            volumes = {volume["name"]: volume for volume in pod["volumes"]}
            mounted = {mount["mountPath"]: volumes[mount["name"]] for mount in pod["containers"][0]["volumeMounts"]}
            shm = mounted["/dev/shm"]["emptyDir"]
            resources = pod["containers"][0]["resources"]
            store, limit = float(given["object-store-memory"]), quantity(resources["limits"]["memory"])
            assert shm["medium"] == "Memory" and store <= quantity(shm["sizeLimit"]) <= limit / 2, name
            assert given["object-spilling-directory"] in mounted, name
            # Ray tells its workers what there is by the limits.
            assert resources["requests"] == resources["limits"], name


def test_no_work_on_the_head_and_no_node_without_work(clusters: list[dict[str, Any]]) -> None:
    for spec in clusters:
        assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
        assert spec["enableInTreeAutoscaling"] is True and spec["authOptions"] == {"mode": "token"}
        assert all(group["minReplicas"] == 0 == group["replicas"] for group in spec["workerGroupSpecs"])
        for group in spec["workerGroupSpecs"]:
            keys = {toleration["key"] for toleration in group["template"]["spec"]["tolerations"]}
            gpus = "nvidia.com/gpu" in group["template"]["spec"]["containers"][0]["resources"]["limits"]
            assert not gpus or "nvidia.com/gpu" in keys
            assert group["groupName"] == "training" or "spot" in keys


def test_containers_are_no_root_and_hold_no_secret(clusters: list[dict[str, Any]]) -> None:
    images = set()
    for spec in clusters:
        for group in pods(spec).values():
            pod = group["template"]["spec"]
            assert pod["securityContext"]["runAsNonRoot"] is True
            container = pod["containers"][0]
            images.add(container["image"])
            for variable in container["env"]:
                if any(part in variable["name"] for part in SECRET):
                    assert "value" not in variable and variable["valueFrom"]["secretKeyRef"]["optional"] is True
    assert len(images) == 1


def test_the_job_fits_its_own_cluster(ray_job: dict[str, Any]) -> None:
    words = shlex.split(ray_job["spec"]["entrypoint"])
    assert words[:4] == ["python", "-m", "repair_ray", "run"]
    config = load_config(ROOT / Path(words[4]).relative_to("/opt/repair_ray"), words[5:])
    # It starts without a node, and so has to say which may come.
    (allowed,) = config.cluster.node_groups
    assert config.output.startswith("/shared/")
    nodes = []
    for group in ray_job["spec"]["rayClusterSpec"]["workerGroupSpecs"]:
        limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
        cpus, gpus = quantity(limits["cpu"]), float(limits.get("nvidia.com/gpu", 0))
        nodes += [Node(group["groupName"], cpus, gpus, quantity(limits["memory"]))] * group["maxReplicas"]
    assert [finding.state for finding in check_pools(config, nodes)] == ["ok"]
    assert [(allowed.cpus, allowed.gpus)] * allowed.max_nodes == [(node.cpus, node.gpus) for node in nodes]
    assert allowed.memory_gb is not None and allowed.memory_gb * 2**30 <= nodes[0].memory
    assert [finding.state for finding in check_pools(config, [Node("small", 8, 1, 2**35)])] != ["ok"]
    assert ray_job["spec"]["submissionMode"] != "HTTPMode" and ray_job["spec"]["backoffLimit"] > 0
