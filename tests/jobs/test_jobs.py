"""Every job file loads, its models are known, and it fits the cluster that its head names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import open_clip
import pytest
import yaml

from repair_ray.config import Config, ConfigError, TextConfig, load_config, load_section
from repair_ray.doctor.cluster import Node, check_pools
from repair_ray.engines.retriever import check_named

JOBS = Path(__file__).parents[2] / "jobs"
FILES = sorted(JOBS.glob("*.yaml"))
OF_TEXTS = ("hncse",)
# As the head of each file says.
MACHINE = Node("machine", cpus=64, gpus=8, memory=2**39)
CLUSTERS = {
    "flickr30k": [MACHINE],
    "coco30k": [MACHINE],
    "saft": [MACHINE],
    "san": [MACHINE],
    "web10m": [Node(f"machine {number}", cpus=192, gpus=8, memory=2**40) for number in range(4)],
}


def load(path: Path) -> Any:
    return load_section(TextConfig if path.stem in OF_TEXTS else Config, path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_loads(path: Path) -> None:
    config = load(path)
    assert config.name == path.stem
    assert path.read_text(encoding="utf-8").startswith("# ")


def test_all_are_here() -> None:
    assert {path.stem for path in FILES} >= {*CLUSTERS, *OF_TEXTS, "smoke", "emoji", "multimatch"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_misspelt_key_is_found(path: Path, tmp_path: Path) -> None:
    tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    tree["retriver"] = tree.pop("retriever", {})
    (tmp_path / path.name).write_text(yaml.safe_dump(tree), encoding="utf-8")
    with pytest.raises(ConfigError, match="unknown key 'retriver'; did you mean 'retriever'"):
        load(tmp_path / path.name)


@pytest.mark.parametrize("name", [*CLUSTERS, *OF_TEXTS])
def test_its_models_are_known_to_open_clip(name: str) -> None:
    config = load(JOBS / f"{name}.yaml")
    check_named(config.retriever.model, config.retriever.pretrained)
    known = set(open_clip.list_pretrained())
    assert (config.retriever.model, config.retriever.pretrained) in known
    teacher = getattr(config, "teacher", None)
    assert teacher is None or (teacher.retriever.model, teacher.retriever.pretrained) in known


@pytest.mark.parametrize("name", CLUSTERS)
def test_it_fits_the_cluster_that_it_names(name: str) -> None:
    config = load_config(JOBS / f"{name}.yaml")
    assert [finding.state for finding in check_pools(config, CLUSTERS[name])] == ["ok"]
    # All GPUs work when it trains.
    assert config.training.workers == sum(node.gpus for node in CLUSTERS[name])
    assert "ok" not in {finding.state for finding in check_pools(config, CLUSTERS[name][:-1])}


@pytest.mark.parametrize("name", [*CLUSTERS, *OF_TEXTS])
def test_all_nodes_see_what_it_names(name: str) -> None:
    config = load(JOBS / f"{name}.yaml")
    assert config.output == "/shared/runs"
    data = getattr(config, "data", None)
    paths = [data.path, data.train, data.validation, data.test, data.image_root] if data else [config.texts.path]
    assert all(path.startswith(("/shared/", "s3://")) for path in paths if path)
