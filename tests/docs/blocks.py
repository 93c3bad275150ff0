"""The fenced blocks of a page, and how each is held to what it says.

`bash` and `python` blocks run, in order, in one folder a page; `file=NAME` in a block's head writes it there instead;
`yaml` blocks are read as configs. A comment right before a block, `<!-- not run: reason -->`, takes it out, and
`<!-- run: minutes -->` leaves it to the tests of whole runs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from markdown_it import MarkdownIt

from repair_ray.config import TextConfig, parse_config, parse_section

ROOT = Path(__file__).parents[2]
NOT_RUN = re.compile(r"<!-- not run: \S.*-->\s*$")
MINUTES = "<!-- run: minutes -->"
DATA = {"path": "pairs.parquet"}


@dataclass(frozen=True)
class Block:
    """A fenced block: where it begins, its language, the file that it is written to, its text."""

    page: Path
    line: int
    language: str
    file: str | None
    text: str
    not_run: bool
    minutes: bool

    @property
    def place(self) -> str:
        """Where to look for it."""
        return f"{self.page.name}:{self.line}"

    @property
    def held(self) -> bool:
        """Whether a test holds it to what it says."""
        return self.file is not None or self.language in ("bash", "python", "yaml")


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    lines = page.read_text(encoding="utf-8").splitlines()
    found = []
    for token in MarkdownIt().parse("\n".join(lines)):
        if token.type != "fence" or token.map is None:
            continue
        language, _, rest = token.info.strip().partition(" ")
        named = re.fullmatch(r"file=(\S+)", rest.strip())
        assert not rest or named, f"{page.name}:{token.map[0] + 1}: {rest!r} is no file=NAME"
        before = next((line for line in reversed(lines[: token.map[0]]) if line.strip()), "")
        found.append(
            Block(
                page,
                token.map[0] + 1,
                language,
                named[1] if named else None,
                token.content,
                bool(NOT_RUN.match(before)),
                before.strip() == MINUTES,
            )
        )
    return found


def run_page(page: Path, folder: Path, *, minutes: bool) -> int:
    """Run a page's blocks in a folder; returns how many were run. `minutes`: also those that take so long."""
    count = 0
    for block in blocks_of(page):
        if block.not_run or (block.minutes and not minutes):
            continue
        count += 1
        if block.file is not None:
            path = folder / block.file
            assert path.resolve().is_relative_to(folder.resolve()), block.place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        if block.language == "yaml":
            _check_yaml(block, folder)
        elif block.file is None:
            _execute(block, folder)
    return count


def check_config(text: str) -> None:
    """Raises `ConfigError` for a text that is neither a config nor a part of one."""
    tree: dict[str, Any] = yaml.safe_load(text)
    if "texts" in tree:
        parse_section(TextConfig, tree)
    else:
        parse_config({"data": DATA, **tree})


def _check_yaml(block: Block, folder: Path) -> None:
    # In a process of its own, which finds the plugins that the page has installed.
    code = "import sys; from tests.docs.blocks import check_config; check_config(sys.stdin.read())"
    _ended(block, subprocess.run([sys.executable, "-c", code], input=block.text, **_how(folder)))


def _execute(block: Block, folder: Path) -> None:
    command = [sys.executable, "-c"] if block.language == "python" else ["bash", "-euo", "pipefail", "-c"]
    _ended(block, subprocess.run([*command, block.text], **_how(folder)))


def _how(folder: Path) -> dict[str, Any]:
    """A process in a page's folder; `pip install .` goes into a folder beside it, without a network."""
    site = folder / "site-packages"
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(map(str, (folder, ROOT, site))),
        "PIP_TARGET": str(site),
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads it the other way round: this is --no-build-isolation
        "PIP_QUIET": "1",
    }
    return {"cwd": folder, "env": environment, "capture_output": True, "text": True, "timeout": 900}


def _ended(block: Block, ended: subprocess.CompletedProcess[str]) -> None:
    assert ended.returncode == 0, (
        f"{block.place} ended with {ended.returncode}\n{ended.stdout[-1500:]}{ended.stderr[-3000:]}"
    )
