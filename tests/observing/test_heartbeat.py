"""The driver's sign of life: while it works, how it ended, and the command that goes on."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from repair_ray.config import ConfigError
from repair_ray.observing.heartbeat import FILE, Heartbeat, command_again, read_beat
from repair_ray.run import RunError


def test_it_beats_while_the_run_works_and_says_that_it_ended(tmp_path: Path) -> None:
    assert read_beat(tmp_path) is None
    with Heartbeat(tmp_path, every=0.02):
        first = read_beat(tmp_path)
        assert first is not None
        assert (first.pid, first.host, first.folder) == (os.getpid(), socket.gethostname(), os.getcwd())
        deadline = time.monotonic() + 10
        while (beat := read_beat(tmp_path)) is not None and beat.beat == first.beat and time.monotonic() < deadline:
            time.sleep(0.02)
        assert beat is not None and beat.beat > first.beat and beat.ended is None
    last = read_beat(tmp_path)
    assert last is not None and last.ended is not None and last.error is None and last.started == first.started
    time.sleep(0.1)
    assert read_beat(tmp_path) == last, "it beats no more"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RunError("the disk of /runs is full"), "the disk of /runs is full"),
        (ConfigError("no key"), "no key"),
        (RunError("x" * 9_000), "x" * 500),
        (KeyboardInterrupt(), "stopped by Ctrl-C"),
        (ValueError("key=sk-secret"), "ValueError"),
    ],
)
def test_why_it_ended(tmp_path: Path, error: BaseException, said: str) -> None:
    with pytest.raises(type(error)), Heartbeat(tmp_path):
        raise error
    beat = read_beat(tmp_path)
    assert beat is not None and beat.error == said and beat.ended is not None


def test_a_folder_that_cannot_be_written_does_not_end_the_run(tmp_path: Path) -> None:
    with Heartbeat(tmp_path / "none"):
        pass
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("content", ['{"pid": 1', "[1]", '{"colour": "red"}'])
def test_a_broken_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(RunError, match=r"heartbeat\.json is no heartbeat .* delete it"):
        read_beat(tmp_path)


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["/v/bin/repair-ray", "run", "my.yaml", "name=a b"], "repair-ray run my.yaml 'name=a b'"),
        (["/p/repair_ray/__main__.py", "demo"], "repair-ray demo"),
        (
            ["repair-ray", "run", "x.yaml", "--redo", "edits", "seed=1", "--redo=training"],
            "repair-ray run x.yaml seed=1",
        ),
        (["repair-ray", "run", "x.yaml", "--redo"], "repair-ray run x.yaml"),
        (["/v/bin/pytest", "-k", "run"], None),
        (["-c"], None),
        ([], None),
    ],
)
def test_the_command_that_goes_on(argv: list[str], command: str | None) -> None:
    assert command_again(argv) == command
