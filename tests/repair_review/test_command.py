"""`repair-ray review` as a process: served here alone, each answer kept, a resumed session goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from repair_ray.config import CRITERIA, Config
from repair_ray.run import Run

ROOT = Path(__file__).parents[2]
Made = tuple[Run, Config]


@contextmanager
def reviewing(run: Run, *options: str) -> Iterator[str]:
    """The command; yields the address that it prints."""
    command = [sys.executable, "-m", "repair_ray", "review", str(run.folder), *options]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
    # What was started in the background of a script ignores Ctrl-C, and so would what it starts.
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment, preexec_fn=heard
    ) as server:
        try:
            assert server.stdout is not None
            lines = [server.stdout.readline() for _ in range(2)]
            (found,) = re.findall(r"(?:anna|open): (http://127\.0\.0\.1:\d+/[\w-]{43}/\S*)", "".join(lines))
            yield found
        finally:
            server.send_signal(signal.SIGINT)
        assert server.wait(timeout=30) == 130


def fetch(address: str, body: dict[str, str] | None = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"} if data else {})
    with urllib.request.urlopen(request, timeout=10) as answer:
        found: bytes = answer.read()
    return found.decode()


def item_at(text: str) -> tuple[str, int]:
    """The item of a page, and its number."""
    (item,), (number,) = re.findall(r'data-item="(\w+)"', text), re.findall(r"<h1>(\d+) of", text)
    return item, int(number)


def test_a_killed_session_goes_on_with_another_token(made: Made) -> None:
    pytest.importorskip("uvicorn", reason="pip install repair_ray[review]")
    run, _ = made
    before = _files(run)
    with reviewing(run, "--annotator", "anna", "--sample", "5", "--seed", "1") as first:
        item, number = item_at(fetch(first))
        assert number == 1
        for criterion in CRITERIA:
            told = fetch(f"{first}/answers", {"item": item, "question": criterion, "answer": "yes"})
        assert json.loads(told) == {"done": 1, "total": 5}
        # On the disk while the page is still served.
        kept = (run.path("review/answers") / "anna.jsonl").read_text().splitlines()
        assert [json.loads(line)["item"] for line in kept] == [f"{item}/{criterion}" for criterion in CRITERIA]
    with reviewing(run) as second:
        assert second.endswith("/") and "/as/anna" in fetch(second)
        assert item_at(fetch(f"{second}as/anna"))[1] == 2
        old = first.split("/")[3]
        with pytest.raises(urllib.error.HTTPError, match="403"):
            fetch(re.sub(r"(:\d+)/[\w-]+/", rf"\1/{old}/", second))
    changed = {name for name, when in _files(run).items() if before.get(name) != when}
    assert changed and all(name.startswith("review/") for name in changed)


def _files(run: Run) -> dict[str, int]:
    """When each file of a run was written."""
    files = (path for path in run.folder.rglob("*") if path.is_file())
    return {path.relative_to(run.folder).as_posix(): path.stat().st_mtime_ns for path in files}
