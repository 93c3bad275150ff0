"""Settings of a text-only run: short forms, and what is refused before any work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from repair_ray.config import ConfigError, TextConfig, load_section, parse_section

LEAST: dict[str, Any] = {"texts": "a.txt"}


def test_defaults_are_those_of_simcse(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("texts: a.txt\nvalidation: dev.csv\ntest: {path: t.csv, columns: [s, a, b]}\n")
    config = load_section(TextConfig, tmp_path / "c.yaml", ["name=x", "training.lr=1e-4"])
    assert (config.objective.temperature, config.objective.dropout) == (0.05, 0.1)
    assert (config.training.batch_size, config.training.lr) == (64, 1e-4)
    assert config.objective.positive_mixing is None and config.objective.hard_negative_mixing is None
    assert config.texts.path == "a.txt" and config.validation is not None and config.validation.path == "dev.csv"
    assert config.test is not None and config.test.columns == ("s", "a", "b")
    assert config.run_dir == Path("runs/x")


def test_terms_by_a_word() -> None:
    tree = {**LEAST, "objective": {"positive_mixing": True, "hard_negative_mixing": False}}
    objective = parse_section(TextConfig, tree).objective
    assert objective.positive_mixing is not None and objective.positive_mixing.margin == 0.1
    assert objective.hard_negative_mixing is None


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({}, "texts=.*field required"),
        ({"texts": {"column": "a"}}, "set either texts.path or texts.data"),
        ({"texts": {"path": "a", "data": {"path": "b"}}}, "set either texts.path or texts.data"),
        ({"texts": {"data": {"path": "b"}, "column": "a"}}, "set texts.data.caption_column"),
        ({"texts": {"data": {"world": {}}}}, "texts.data.world: name files"),
        ({**LEAST, "training": {"grid_share": 1}}, "unknown key 'training.grid_share'"),
        ({**LEAST, "objective": {"temprature": 1}}, "unknown key 'objective.temprature'; did you mean 'temperature'"),
        ({**LEAST, "training": {"batch_size": 9, "workers": 2}}, "training.batch_size=9 does not divide"),
        ({**LEAST, "objective": {"simcse_weight": 0}}, "every weight is 0"),
        ({**LEAST, "objective": {"simcse_weight": 0, "positive_mixing": {"weight": 0}}}, "every weight is 0"),
        ({**LEAST, "objective": {"dropout": 0}}, "objective.dropout=0"),
        ({**LEAST, "objective": {"positive_mixing": {"mix": "printed"}}}, "printed Eq. 2 is not offered"),
        (
            {**LEAST, "training": {"batch_size": 8}, "objective": {"hard_negative_mixing": {"k": 8}}},
            "hard_negative_mixing.k=8 is not below training.batch_size=8",
        ),
    ],
)
def test_settings_that_are_refused(tree: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        parse_section(TextConfig, tree)
