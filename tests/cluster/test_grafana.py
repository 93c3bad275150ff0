"""The dashboard of Grafana: its JSON, its panels, and that every metric in it is one that somebody exports."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray.dashboard.modules.metrics.dashboards as ray_dashboards
from ray.dashboard.modules.metrics.dashboards.common import Panel

from repair_ray.observing.metrics import COUNTERS, POOL_GAUGES, STAGE_GAUGES, exported_names

ROOT = Path(__file__).parents[2]
FILE = ROOT / "cluster" / "grafana" / "repair_ray.json"
# What Grafana's JSON model asks of a dashboard that is imported: https://grafana.com/docs/grafana/latest/dashboards/
# build-dashboards/view-dashboard-json-model/
DATASOURCE = {
    "type": "object",
    "required": ["type", "uid"],
    "properties": {"type": {"const": "prometheus"}, "uid": {"const": "${datasource}"}},
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["uid", "title", "schemaVersion", "templating", "panels", "time", "tags"],
    "properties": {
        "uid": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,40}$"},
        "title": {"type": "string", "minLength": 1},
        "schemaVersion": {"type": "integer", "minimum": 36},
        "id": {"type": "null"},
        "templating": {
            "type": "object",
            "required": ["list"],
            "properties": {
                "list": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["name", "type", "query"],
                        "properties": {"type": {"enum": ["datasource", "query"]}},
                    },
                }
            },
        },
        "panels": {"type": "array", "minItems": 1, "items": {"$ref": "#/definitions/panel"}},
    },
    "definitions": {
        "panel": {
            "type": "object",
            "required": ["id", "type", "title", "gridPos"],
            "properties": {
                "id": {"type": "integer", "minimum": 1},
                "type": {"enum": ["row", "timeseries"]},
                "title": {"type": "string", "minLength": 1},
                "gridPos": {
                    "type": "object",
                    "required": ["x", "y", "w", "h"],
                    "additionalProperties": False,
                    "properties": {
                        "x": {"type": "integer", "minimum": 0, "maximum": 23},
                        "y": {"type": "integer", "minimum": 0},
                        "w": {"type": "integer", "minimum": 1, "maximum": 24},
                        "h": {"type": "integer", "minimum": 1},
                    },
                },
            },
            "if": {"properties": {"type": {"const": "timeseries"}}},
            "then": {
                "required": ["datasource", "description", "fieldConfig", "targets"],
                "properties": {
                    "datasource": DATASOURCE,
                    "description": {"type": "string", "minLength": 1},
                    "fieldConfig": {
                        "type": "object",
                        "required": ["defaults", "overrides"],
                        "properties": {"defaults": {"type": "object", "required": ["unit"]}},
                    },
                    "targets": {
                        "type": "array",
                        "minItems": 1,
                        "items": {
                            "type": "object",
                            "required": ["refId", "expr", "legendFormat", "datasource"],
                            "properties": {"expr": {"type": "string", "minLength": 1}, "datasource": DATASOURCE},
                        },
                    },
                },
            },
        }
    },
}
# Grafana's own ids of units; anything else has to be a suffix of ours.
UNITS = {"s", "percent", "percentunit", "bytes", "Bps"}
WORDS = {"sum", "avg", "max", "by", "rate", "deriv", "increase", "histogram_quantile"}
SELECTED = re.compile(r"\b([a-z_][a-z0-9_]*)\{([^}]*)\}")


@pytest.fixture(scope="module")
def board() -> dict[str, Any]:
    return json.loads(FILE.read_text(encoding="utf-8"))


def charts(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def expressions(board: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in charts(board) for target in panel["targets"]]


def asked(board: dict[str, Any]) -> list[str]:
    """What the variables ask Prometheus for."""
    return [variable["query"]["query"] for variable in board["templating"]["list"] if variable["type"] == "query"]


def metrics_in(expression: str) -> set[str]:
    return {name for name, _ in SELECTED.findall(expression)}


def of_ray() -> Iterator[str]:
    """The metrics that Ray's own dashboards show."""
    for module in pkgutil.iter_modules(ray_dashboards.__path__):
        found = importlib.import_module(f"{ray_dashboards.__name__}.{module.name}")
        for panel in _panels(vars(found).values()):
            for target in panel.targets:
                yield from re.findall(r"\bray_[a-z0-9_]+", target.expr)


def _panels(values: Any) -> Iterator[Panel]:
    for value in values:
        if isinstance(value, Panel):
            yield value
        elif isinstance(value, list):
            yield from _panels(value)


def test_the_json_is_a_dashboard(board: dict[str, Any]) -> None:
    jsonschema.validate(board, SCHEMA, cls=jsonschema.Draft7Validator)
    first = board["templating"]["list"][0]
    assert (first["name"], first["type"], first["query"]) == ("datasource", "datasource", "prometheus")
    identities = [panel["id"] for panel in board["panels"]]
    assert len(set(identities)) == len(identities)


@pytest.mark.parametrize("broken", [{"uid": "a b"}, {"panels": []}, {"schemaVersion": "39"}])
def test_the_schema_refuses(board: dict[str, Any], broken: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**board, **broken}, SCHEMA, cls=jsonschema.Draft7Validator)


def test_no_panel_covers_another(board: dict[str, Any]) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in board["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert (x, y) not in taken, f"{panel['title']} covers {taken[x, y]}"
                taken[x, y] = panel["title"]


def test_every_panel_has_a_title_of_its_own_and_a_unit(board: dict[str, Any]) -> None:
    titles = [panel["title"] for panel in charts(board)]
    assert len(set(titles)) == len(titles)
    for panel in charts(board):
        unit = panel["fieldConfig"]["defaults"]["unit"]
        assert unit in UNITS or unit.startswith("suffix: "), panel["title"]
        assert all(target["legendFormat"] for target in panel["targets"])
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters)


def test_every_metric_is_exported(board: dict[str, Any]) -> None:
    ours, theirs = set(exported_names()), set(of_ray())
    assert len(theirs) > 50, "Ray's dashboards were found"
    used = set().union(*map(metrics_in, expressions(board)))
    used |= {query.removeprefix("label_values(").split("{")[0].split(",")[0] for query in asked(board)}
    assert used - ours - theirs == set()
    # None of ours is told for nothing.
    shown = {name for name in ours if not name.endswith(("_count", "_sum"))}
    assert shown - used == set()


def test_expressions_select_a_session_and_name_only_labels_that_are_there(board: dict[str, Any]) -> None:
    for expression in expressions(board):
        assert expression.count("(") == expression.count(")") and expression.count("{") == expression.count("}")
        selected = SELECTED.findall(expression)
        assert selected
        for name, selector in selected:
            assert 'SessionName=~"$session"' in selector, expression
            labels = set(re.findall(r"(\w+)=", selector)) - {"SessionName"}
            grouped = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", expression)))) - {"le"}
            if name.startswith("ray_repair_ray_"):
                plain = name.removeprefix("ray_repair_ray_").removesuffix("_total").removesuffix("_bucket")
                known = {"stage"} if plain in STAGE_GAUGES else {"stage", "pool"}
                assert labels <= known, expression
                assert grouped <= known or "ray_data" in expression, expression
        # Nothing stands outside a selector but functions, numbers, and labels to group by.
        rest = re.sub(r"by \([^)]*\)|\[[^]]*\]", "", SELECTED.sub("", expression))
        assert set(re.findall(r"[a-z_]+", rest)) <= WORDS, expression


def test_counters_are_read_as_rates(board: dict[str, Any]) -> None:
    for expression in expressions(board):
        for name in metrics_in(expression):
            counted = name.endswith(("_total", "_bucket"))
            assert bool(re.search(rf"(rate|increase)\({name}\{{", expression)) == counted, expression


def test_names_of_the_dashboard_are_those_of_the_code() -> None:
    assert len(exported_names()) == len(COUNTERS) + len(POOL_GAUGES) + len(STAGE_GAUGES) + 3
    assert "ray_repair_ray_idle_gpu_seconds_total" in exported_names()
