"""The sign of life of the process that makes a run: a file in the run directory, written every few seconds.

Who sees the storage can tell by it a run that works from one that was killed, without asking Ray or the machine.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from repair_ray.run import RunError, read_json, write_json

FILE = "heartbeat.json"
BEAT_SECONDS = 5.0
# A driver that starts hundreds of actors, or a storage that is slow for a moment, misses some beats.
STALE_SECONDS = 30.0
_MAX_MESSAGE = 500


@dataclass(frozen=True)
class Beat:
    """The last sign of life. Times are in seconds since 1970, by the clock of `host`.

    Attributes:
        command: the command line that goes on with the run; None where it was started from Python.
        ended: when the process left the run, None while it works. error: why, where it did not come to its end.
    """

    pid: int
    host: str
    started: float
    beat: float
    folder: str
    command: str | None = None
    ended: float | None = None
    error: str | None = None


class Heartbeat:
    """Writes the file while a `with` block works on a run, and at its end how it ended."""

    def __init__(self, run_folder: Path, *, every: float = BEAT_SECONDS, now: Callable[[], float] = time.time) -> None:
        self._path, self._every, self._now = run_folder / FILE, every, now
        self._facts: dict[str, Any] = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "started": now(),
            "folder": os.getcwd(),
            "command": command_again(sys.argv),
        }
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def __enter__(self) -> Heartbeat:
        self._write()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        self._write(ended=self._now(), error=None if error is None else _said(error))

    def _loop(self) -> None:
        while not self._stop.wait(self._every):
            self._write()

    def _write(self, **facts: Any) -> None:
        # Where it cannot be written, the run's own files cannot either, and say so.
        with contextlib.suppress(OSError):
            write_json(self._path, asdict(Beat(**self._facts, beat=self._now(), **facts)))


def read_beat(run_folder: Path) -> Beat | None:
    """The last sign of life, or None where a run has none.

    Raises:
        RunError: the file is not one.
    """
    path = run_folder / FILE
    try:
        record = read_json(path)
        return None if record is None else Beat(**record)
    except (ValueError, TypeError) as error:
        raise RunError(f"{path} is no heartbeat ({error}); delete it, the run writes it anew") from None


def command_again(argv: Sequence[str]) -> str | None:
    """The command line that goes on with a run: what it was started by, but for `--redo`, which would not go on.

    None where it was not started by this package's command.
    """
    program = Path(argv[0]) if argv else Path()
    if program.name != "repair-ray" and program.parts[-2:] != ("repair_ray", "__main__.py"):
        return None
    kept: list[str] = []
    words = iter(argv[1:])
    for word in words:
        if word == "--redo":
            next(words, None)
        elif not word.startswith("--redo="):
            kept.append(word)
    return shlex.join(["repair-ray", *kept])


def _said(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "stopped by Ctrl-C"
    # Messages of other errors are not ours, and may hold anything.
    ours = type(error).__module__.partition(".")[0] == __package__.partition(".")[0]
    return str(error)[:_MAX_MESSAGE] if ours else type(error).__name__
