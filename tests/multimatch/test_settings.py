"""Settings that do not go together, and experts that are not there, are told before any work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from repair_ray.config import ConfigError, ExpertConfig, parse_config
from repair_ray.engines.retriever import RetrieverError
from repair_ray.multimatch.build import build
from repair_ray.multimatch.experts import experts_of
from repair_ray.run import RunError, write_json
from tests.multimatch.conftest import settings

TEACHER = {"name": "t", "model": "m", "pretrained": "p", "teacher": True}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"experts": []}, r"multimatch\.experts is empty: name at least one retriever"),
        ({"experts": [TEACHER, TEACHER]}, r"multimatch\.experts: two are named 't'"),
        ({"experts": [{"name": "a"}]}, "expert 'a' needs either a run or a model"),
        ({"experts": [{"name": "a", "run": "r", "pretrained": "p"}]}, "expert 'a': a run has weights of its own"),
        ({"experts": [{"name": "../a", "run": "r"}]}, r"multimatch\.experts\.0\.name"),
        ({"experts": [{"name": "a", "runs": "r"}]}, r"unknown key 'multimatch\.experts\.0\.runs'; did you mean 'run'"),
        ({"gallery": {"size": 10, "clusters": 11}}, r"clusters=11 is larger than the pool, gallery\.size=10"),
        ({"gallery": {"expert": "three"}}, r"gallery\.expert='three' is none of one, two"),
        ({"experts": [TEACHER], "queries": {"held_out": 0.2, "source": "captions"}}, "every expert is a teacher"),
        ({"queries": {"n": 3}}, r"verify\.by=groups knows the data's own captions alone"),
        ({"queries": {"min_matches": 5, "max_matches": 4}}, "min_matches=5 is above max_matches=4"),
        ({"verify": {"by": []}}, r"multimatch\.verify\.by is empty"),
        ({"overlap": {"split": "test"}}, "are both 'test'"),
    ],
)
def test_refused_settings(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config(settings(tmp_path, **changes))


def test_a_config_without_the_section(tmp_path: Path) -> None:
    tree = settings(tmp_path)
    del tree["multimatch"]
    with pytest.raises(RunError, match="the config has no section multimatch"):
        build(parse_config(tree))
    assert not (tmp_path / "bench").exists()


@pytest.mark.parametrize(
    ("expert", "message"),
    [
        ({"run": "{tmp}/none"}, r"multimatch\.experts: a is of a run, and there is none at .*none"),
        ({"run": "{tmp}/untrained"}, "its retriever is not trained"),
        ({"model": "no-such-model", "pretrained": "x"}, "unknown retriever.model 'no-such-model'"),
        ({"model": "tiny-64"}, "a has no weights: set its pretrained"),
        ({"model": "tiny-64", "pretrained": "{tmp}/none.safetensors"}, r"a: no checkpoint at .*none\.safetensors"),
        ({"model": "ViT-B-32", "pretrained": "no-such-tag"}, "no-such-tag"),
        ({"model": "sentence-transformers:x", "pretrained": "x"}, "sees texts only"),
    ],
)
def test_experts_that_are_not_there(tmp_path: Path, expert: dict[str, str], message: str) -> None:
    config = parse_config({"data": {"path": "x"}, "retriever": {"model": "tiny-64"}, "base": {}})
    (tmp_path / "untrained").mkdir()
    write_json(tmp_path / "untrained" / "config.json", config.model_dump(mode="json"))
    named = {key: value.replace("{tmp}", str(tmp_path)) for key, value in expert.items()}
    with pytest.raises((RunError, RetrieverError), match=message):
        experts_of([ExpertConfig(name="a", **named)])  # type: ignore[arg-type]
