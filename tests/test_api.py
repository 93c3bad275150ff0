"""The Python API: light to import, named as the commands, and what the example calls is there."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

import repair_ray
from repair_ray import api
from repair_ray.cli import app
from repair_ray.run import RunError

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "python_api.py"
LIGHT = """
import sys
import repair_ray
repair_ray.Config, repair_ray.ConfigError, repair_ray.api
print(sorted({name.split(".")[0] for name in sys.modules} & {"torch", "ray", "open_clip", "faiss", "transformers"}))
"""


def test_importing_the_package_imports_neither_torch_nor_ray() -> None:
    ended = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ended.stdout.strip() == "[]"


def test_names_of_the_package() -> None:
    assert dir(repair_ray) == sorted(repair_ray.__all__)
    assert repair_ray.Config.__module__ == "repair_ray.config"
    with pytest.raises(AttributeError, match="module 'repair_ray' has no attribute 'nothing'"):
        repair_ray.nothing


def test_every_function_is_named_as_its_command() -> None:
    group = typer.main.get_command(app)
    commands = set(group.commands)  # type: ignore[attr-defined]
    parts = {f"export_{name}" for name in group.commands["export"].commands}  # type: ignore[attr-defined]
    parts |= set(group.commands["evaluate"].commands)  # type: ignore[attr-defined]
    assert set(api.__all__) <= commands | parts
    for name in api.__all__:
        assert inspect.getdoc(getattr(api, name)), name


def test_settings_from_python(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("data: {path: x.parquet}\n")
    assert repair_ray.Config.load(path, "training.lr=1e-4", "name=b").training.lr == 1e-4
    with pytest.raises(repair_ray.ConfigError, match=r"unknown key 'training\.sttps'"):
        repair_ray.Config.load(path, "training.sttps=3")


@pytest.mark.parametrize("ask", [api.status, api.report, lambda folder: api.rollback(folder, 1)])
def test_a_run_that_is_not_there(tmp_path: Path, ask: object) -> None:
    with pytest.raises(RunError, match=str(tmp_path / "none")):
        ask(tmp_path / "none")  # type: ignore[operator]


def test_what_the_example_calls_is_there() -> None:
    tree = ast.parse(EXAMPLE.read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    called = {}
    for call in calls:
        assert isinstance(call.func, ast.Attribute)
        if isinstance(call.func.value, ast.Name) and call.func.value.id == "api":
            called[call.func.attr] = call
    assert {"run", "status", "evaluate", "search", "export_pairs", "report"} == set(called)
    for name, call in called.items():
        given = {keyword.arg: None for keyword in call.keywords}
        inspect.signature(getattr(api, name)).bind(*call.args, **given)  # type: ignore[arg-type]


@pytest.mark.integration
@pytest.mark.whole_runs
def test_the_example_runs(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, str(EXAMPLE), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    lines = ended.stdout.splitlines()
    assert any(line.startswith("R@1 of images: ") for line in lines)
    assert "searched in test" in lines
    assert (tmp_path / "runs" / "example" / "report.html").is_file()
    assert any((tmp_path / "pairs").iterdir())
