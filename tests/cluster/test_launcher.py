"""The files of Ray's cluster launcher, by the schema that Ray itself holds them against."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from jsonschema import Draft7Validator

from tests.cluster.manifests import FOLDER

FILES = ("aws.yaml", "gcp.yaml")


@pytest.fixture(scope="module")
def check() -> Draft7Validator:
    path = Path(ray.__file__).parent / "autoscaler" / "ray-schema.json"
    return Draft7Validator(json.loads(path.read_text(encoding="utf-8")))


@pytest.fixture(params=FILES)
def launcher(request: pytest.FixtureRequest) -> dict[str, Any]:
    return yaml.safe_load((FOLDER / request.param).read_text(encoding="utf-8"))


def test_valid(check: Draft7Validator, launcher: dict[str, Any]) -> None:
    assert [error.message for error in check.iter_errors(launcher)] == []


@pytest.mark.parametrize(
    ("where", "key", "value"),
    [
        ((), "max_worker", 3),
        ((), "max_workers", "three"),
        (("available_node_types", "cpu"), "min_worker", 0),
        (("available_node_types", "cpu"), "resources", {"CPU": "many"}),
    ],
)
def test_a_broken_file_is_found(
    check: Draft7Validator, launcher: dict[str, Any], where: tuple[str, ...], key: str, value: Any
) -> None:
    broken = copy.deepcopy(launcher)
    node = broken
    for part in where:
        node = node[part]
    node[key] = value
    assert list(check.iter_errors(broken))


def test_nodes_grow_from_none_and_share_a_folder(launcher: dict[str, Any]) -> None:
    types = launcher["available_node_types"]
    head = types.pop(launcher["head_node_type"])
    assert head["resources"] == {"CPU": 0}
    assert all(one["min_workers"] == 0 for one in types.values())
    assert launcher["max_workers"] == sum(one["max_workers"] for one in types.values())
    commands = " ".join(launcher["initialization_commands"])
    assert "mount -t nfs" in commands and "/shared" in commands
    assert "--volume /shared:/shared" in launcher["docker"]["run_options"]
    spot = [
        one for one in types.values() if "spot" in str(one["node_config"]) or "preemptible" in str(one["node_config"])
    ]
    assert len(spot) == 2


def test_the_dashboard_is_not_open_and_no_token_is_on_a_command_line(launcher: dict[str, Any]) -> None:
    started = " ".join(launcher["head_start_ray_commands"])
    assert "--dashboard-host=127.0.0.1" in started and "--object-spilling-directory=/spill" in started
    options = launcher["docker"]["run_options"]
    assert "--env RAY_AUTH_MODE=token" in options and not any("RAY_AUTH_TOKEN=" in option for option in options)
    path = next(option.partition("RAY_AUTH_TOKEN_PATH=")[2] for option in options if "RAY_AUTH_TOKEN_PATH" in option)
    assert path in launcher["file_mounts"]
