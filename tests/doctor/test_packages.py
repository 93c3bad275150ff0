"""Interpreters and their packages: real ones where they can be had, and answers for versions that are not here."""

from __future__ import annotations

import platform
import venv
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from repair_ray.config import parse_config
from repair_ray.doctor.needs import Interpreter, interpreters
from repair_ray.doctor.packages import ask, judge

RAY = metadata.version("ray")
HERE: dict[str, Any] = {"python": platform.python_version(), "versions": {"ray": RAY}, "requires": {}, "failed": {}}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python without a package."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    return str(folder / "bin" / "python")


def pool(python: str | None, *packages: str, imports: tuple[str, ...] = ()) -> Interpreter:
    return Interpreter(("edit.pool",), python, packages, imports)


def judged(**changes: Any) -> list[tuple[str, str]]:
    """States and texts for a pool's answer that differs from the driver's."""
    found = judge(pool("/other/python"), HERE | changes, HERE)
    return [(finding.state, finding.found) for finding in found]


def test_an_interpreter_that_lacks_packages(bare: str) -> None:
    interpreter = pool(bare, "ray", "diffusers", imports=("repair_ray.stages.candidates",))
    (finding,) = judge(interpreter, ask(interpreter, 60), HERE)
    assert (finding.check, finding.state) == ("packages of edit.pool", "failed")
    assert finding.found == f"Python {platform.python_version()} ({bare}): lacks ray, diffusers"
    assert finding.advice == f"{bare} -m pip install ray=={RAY} diffusers"


def test_an_import_that_fails(bare: str) -> None:
    interpreter = pool(bare, imports=("repair_ray.tables",))
    (finding,) = judge(interpreter, ask(interpreter, 60), HERE)
    assert finding.state == "failed"
    # The package itself is found, as the pool's actors find it; what it imports is not there.
    assert "cannot import repair_ray.tables: ModuleNotFoundError: No module named 'pyarrow'" in finding.found
    assert finding.advice == f"{bare} -m pip install pyarrow"


def test_packages_that_are_there() -> None:
    interpreter = pool(None, "ray", "packaging", imports=("packaging",))
    answer = ask(interpreter, 120)
    assert answer["versions"] == {"ray": RAY, "packaging": metadata.version("packaging")}
    (finding,) = judge(interpreter, answer, None)
    assert (finding.check, finding.state) == ("packages", "ok")
    assert f"ray {RAY}" in finding.found
    # Ray's own metadata says which vLLM its language module was made for.
    both = answer | {"versions": {"ray": RAY, "vllm": "0.1.0"}}
    (warning,) = [f for f in judge(interpreter, both, None) if "is made for" in f.found]
    assert warning.state == "warning"
    assert f"ray.data.llm of ray {RAY} is made for vllm ==" in warning.found


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("sleep 60", "it has not imported its packages within 0.5 s"),
        ("echo hello; echo broken >&2; exit 3", "it ended with code 3 instead of an answer: broken"),
    ],
)
def test_programs_that_are_no_python(tmp_path: Path, script: str, expected: str) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    interpreter = pool(str(program), "ray")
    (finding,) = judge(interpreter, ask(interpreter, 0.5 if "sleep" in script else 30), HERE)
    assert finding.state == "failed"
    assert finding.found == f"{program}: {expected}"
    assert "set edit.pool.python" in finding.advice


def test_no_such_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    interpreter = pool("/nowhere/python", "ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    (finding,) = judge(interpreter, ask(interpreter, 5), HERE)
    assert finding.state == "failed" and "no such program" in finding.found
    # It may lie on the nodes of a cluster alone.
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert [found.state for found in judge(interpreter, ask(interpreter, 5), HERE)] == ["skipped"]


def test_another_python_or_ray_than_the_drivers() -> None:
    assert [state for state, _ in judged()] == ["ok"]
    ((state, found),) = judged(python="3.10.2")
    assert state == "failed" and f"its Python is 3.10.2, the driver's {platform.python_version()}" in found
    states = dict(judged(versions={"ray": "2.60.1"}))
    assert len(states) == 1 and "failed" in states
    ((_, found),) = judged(versions={"ray": "2.60.1"})
    assert f"its Ray is 2.60.1, the driver's {RAY}" in found


@pytest.mark.parametrize(
    ("user", "requirement", "versions", "expected"),
    [
        ("torchvision", "torch==2.14.1", {"torch": "2.13.0"}, "torchvision 9.0 is made for torch ==2.14.1, and 2.13.0"),
        ("torchvision", "torch==2.14.1", {"torch": "2.14.1+cu130"}, None),
        ("torchvision", "torch>=2.14.0", {"torch": "2.15.0.dev1"}, None),
        ("ray", 'vllm[audio]==0.29.0; extra == "llm"', {"vllm": "0.32.0"}, "made for vllm ==0.29.0, and 0.32.0"),
        ("ray", 'vllm[audio]==0.29.0; extra == "llm"', {"vllm": "0.29.0"}, None),
        ("vllm", 'torch==2.13.0; platform_system == "Other"', {"torch": "2.14.1"}, None),
    ],
)
def test_pairs_of_versions(user: str, requirement: str, versions: dict[str, str], expected: str | None) -> None:
    ray = {"ray": RAY} if user == "ray" else {user: "9.0"}
    found = [text for state, text in judged(versions=ray | versions, requires={user: [requirement]}) if state != "ok"]
    made_for = [text for text in found if "is made for" in text]
    assert len(made_for) == (expected is not None)
    assert expected is None or expected in made_for[0]


def test_which_interpreters_a_config_starts() -> None:
    world = {"world": {"train": 4, "validation": 2, "test": 2}}
    (driver,) = interpreters(parse_config({"data": world, "edit": {"image_editor": "scene"}}))
    assert driver.python is None and "diffusers" not in driver.packages and "vllm" not in driver.packages
    models = {
        "data": world,
        "language": {"backend": "vllm", "model": "m", "pool": {"python": "/v/python"}},
        "audit": {"language": {"backend": "openai", "model": "m"}},
        "edit": {"image_editor": "flux2", "pool": {"python": "/d/python"}},
    }
    driver, editor, engines = interpreters(parse_config(models))
    assert (driver.python, editor.python, engines.python) == (None, "/d/python", "/v/python")
    assert "openai" in driver.packages and "vllm" not in driver.packages
    assert "repair_ray.stages.engine" in driver.imports, "the driver builds the engines' graph"
    assert editor.packages == ("ray", "diffusers", "transformers", "accelerate")
    assert engines.users == ("language.pool",) and "vllm" in engines.packages
    # Where nothing is edited, no editor is needed.
    audited = parse_config({**models, "strategy": "mined", "controls": []})
    assert [one.python for one in interpreters(audited)] == [None]
