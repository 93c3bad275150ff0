"""Packages: does each interpreter of a run have what it must import, and do the versions fit each other?"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from repair_ray.config import Config
from repair_ray.doctor.needs import Interpreter, interpreters
from repair_ray.report.findings import Finding, State

PROBE = Path(__file__).with_name("probe.py")
# vLLM alone takes a minute from a slow disk.
PROBE_SECONDS = 300.0
# Modules whose distribution has another name.
DISTRIBUTIONS = {"open_clip": "open_clip_torch", "faiss": "faiss-cpu"}
# Who says in its own metadata which version of whom it was made for. Ray names vLLM in its extra `llm`.
MADE_FOR = (("torchvision", "torch"), ("vllm", "torch"), ("ray", "vllm"))
_NO_MODULE = re.compile(r"No module named '(\w+)")
# State, what was found, what to do.
Problem = tuple[State, str, str]


def check_packages(config: Config, timeout: float = PROBE_SECONDS) -> list[Finding]:
    """One finding or more for each interpreter of the run; each is asked in a process of its own."""
    driver, *others = interpreters(config)
    answer = ask(driver, timeout)
    found = judge(driver, answer, None)
    for interpreter in others:
        found += judge(interpreter, ask(interpreter, timeout), answer)
    return found


def ask(interpreter: Interpreter, timeout: float) -> dict[str, Any]:
    """What `probe.py` answers in that interpreter; `{"error": why}` where it does not."""
    arguments = ["-c", PROBE.read_text(encoding="utf-8"), *map(json.dumps, (interpreter.packages, interpreter.imports))]
    command = [sys.executable] if interpreter.python is None else shlex.split(interpreter.python)
    if not command or shutil.which(command[0]) is None:
        return {"error": "there is no such program on this machine", "absent": True}
    try:
        ended = subprocess.run(
            [*command, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=_environment(interpreter),
            check=False,
        )
        return dict(json.loads(ended.stdout.strip().rpartition("\n")[2]))
    except subprocess.TimeoutExpired:
        return {"error": f"it has not imported its packages within {timeout:g} s"}
    except OSError as error:
        return {"error": f"it cannot be started: {error.strerror or error}"}
    except (ValueError, TypeError):
        last = ended.stderr.strip().rpartition("\n")[2][:200]
        return {"error": f"it ended with code {ended.returncode} instead of an answer: {last}"}


def judge(interpreter: Interpreter, answer: dict[str, Any], driver: dict[str, Any] | None) -> list[Finding]:
    """The findings about one interpreter from its answer and the driver's (None: it is the driver's)."""
    check = "packages" if driver is None else f"packages of {', '.join(interpreter.users)}"
    python = interpreter.python or sys.executable
    if "versions" not in answer:
        # On a cluster a pool's interpreter need only lie on the nodes.
        elsewhere = answer.get("absent") and os.environ.get("RAY_ADDRESS")
        advice = f"set {interpreter.users[-1]}.python to a Python that has the packages of this stage"
        return [Finding(check, "skipped" if elsewhere else "failed", f"{python}: {answer['error']}", advice)]
    who = f"Python {answer['python']}" + ("" if interpreter.python is None else f" ({python})")
    problems = [*_differences(answer, driver), *_absent(interpreter, answer, driver), *_unfit(answer)]
    if problems:
        return [Finding(check, state, f"{who}: {found}", advice) for state, found, advice in problems]
    versions = ", ".join(f"{name} {version}" for name, version in answer["versions"].items())
    return [Finding(check, "ok", f"{who}: {versions}")]


def _environment(interpreter: Interpreter) -> dict[str, str]:
    # As the actors of the pool are started, which find this package as it is here.
    from repair_ray.stages.graph import interpreter as runtime

    made = runtime(interpreter.python, dict(interpreter.variables)) or {}
    return {**os.environ, **made.get("env_vars", {})}


def _differences(answer: dict[str, Any], driver: dict[str, Any] | None) -> list[Problem]:
    """Ray refuses workers of another Python (to the patch level) or another Ray, and starts them for ever."""
    if driver is None or "versions" not in driver:
        return []
    pairs = (
        ("Python", answer["python"], driver["python"]),
        ("Ray", answer["versions"].get("ray"), driver["versions"].get("ray")),
    )
    return [
        ("failed", f"its {name} is {theirs}, the driver's {ours}", f"make that environment with {name} {ours}")
        for name, theirs, ours in pairs
        if theirs and ours and theirs != ours
    ]


def _absent(interpreter: Interpreter, answer: dict[str, Any], driver: dict[str, Any] | None) -> list[Problem]:
    install = f"{interpreter.python or 'python'} -m pip install"
    missing = [name for name, version in answer["versions"].items() if version is None]
    if missing:
        ray = ((driver or {}).get("versions") or {}).get("ray")
        names = [f"ray=={ray}" if name == "ray" and ray else DISTRIBUTIONS.get(name, name) for name in missing]
        return [("failed", f"lacks {', '.join(missing)}", f"{install} {' '.join(names)}")]
    failed = list(answer["failed"].items())
    if failed:
        name, error = failed[0]
        more = f" (and {len(failed) - 1} more)" if failed[1:] else ""
        absent = _NO_MODULE.search(error)
        advice = f"{install} {absent[1]}" if absent else "install versions that fit each other"
        return [("failed", f"cannot import {name}{more}: {error}", advice)]
    return []


def _unfit(answer: dict[str, Any]) -> list[Problem]:
    """Versions that are not those which their users were made for; all imports may still succeed."""
    versions = answer["versions"]
    found: list[Problem] = []
    for user, used in MADE_FOR:
        wanted = _requirement(answer["requires"].get(user) or [], used)
        if wanted is not None and not _fits(wanted, versions.get(used)):
            name = "ray.data.llm of ray" if (user, used) == ("ray", "vllm") else user
            fact = f"{name} {versions[user]} is made for {used} {wanted.specifier}, and {versions[used]} is there"
            found.append(("warning", fact, f"install {used}{wanted.specifier}"))
    for name, version in versions.items():
        wanted = _requirement(_ours(), DISTRIBUTIONS.get(name, name))
        if wanted is not None and not _fits(wanted, version):
            fact = f"{name} {version} is older than what this package is tested with, {wanted.specifier}"
            found.append(("warning", fact, f"install {wanted.name}{wanted.specifier}"))
    return found


def _requirement(lines: list[str], name: str) -> Requirement | None:
    """The requirement for a distribution, one without a marker (other than an extra's) or whose marker holds here."""
    for line in lines:
        requirement = Requirement(line)
        marker = requirement.marker
        applies = marker is None or "extra" in str(marker) or marker.evaluate()
        if canonicalize_name(requirement.name) == canonicalize_name(name) and requirement.specifier and applies:
            return requirement
    return None


def _fits(wanted: Requirement, version: str | None) -> bool:
    # A version that is not known is no reason to warn.
    known = version is not None and version[:1].isdigit()
    return not known or wanted.specifier.contains(str(version), prereleases=True)


def _ours() -> list[str]:
    try:
        return list(metadata.requires("repair_ray") or [])
    except metadata.PackageNotFoundError:
        return []
