"""Live progress: one line a stage on a terminal, plain lines elsewhere."""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
from rich.text import Text

from repair_ray.report.plain import safe_text
from repair_ray.report.results import duration

PACKAGE = "repair_ray"
PLAIN_EVERY = 10.0
RUNNING, DONE, STOPPED = "running", "done", "stopped"


class ProgressView:
    """Shows how stages advance; calls match `stages.graph.Progress` and may come from any thread.

    Stages run one after another: a stage that has reached its total, or that another one follows, keeps its line with
    a tick. One that an exception ends keeps its line with a cross. What the package logs as a warning, such as what a
    stage waits for, is printed between the lines.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._lock = threading.Lock()
        self._view: _Lines | _Plain = _Lines(self.console) if self.console.is_terminal else _Plain(self.console)

    def __enter__(self) -> ProgressView:
        self._notes = _Notes(self.console)
        logging.getLogger(PACKAGE).addHandler(self._notes)
        self._view.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with self._lock:
            self._view.end_others(None, STOPPED if kind else DONE)
            self._view.stop()
        logging.getLogger(PACKAGE).removeHandler(self._notes)

    def __call__(self, name: str, done: int, total: int) -> None:
        with self._lock:
            self._view.end_others(name, DONE)
            self._view.show(name, done, total)


class _Notes(logging.Handler):
    """Prints log records above a live display."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        self._console.print(safe_text(record.getMessage(), "yellow"), highlight=False, soft_wrap=True)


class _Lines:
    """A rich live display."""

    def __init__(self, console: Console) -> None:
        plain = console.options.ascii_only
        self._progress = Progress(
            _State(plain),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            _Rows(),
            console=console,
            refresh_per_second=4,
        )
        self._tasks: dict[str, TaskID] = {}

    def start(self) -> None:
        self._progress.start()

    def stop(self) -> None:
        self._progress.stop()

    def show(self, name: str, done: int, total: int) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total or None, state=RUNNING)
        state = DONE if total and done >= total else RUNNING
        self._progress.update(self._tasks[name], completed=done, total=total or None, state=state)

    def end_others(self, name: str | None, state: str) -> None:
        for task in self._progress.tasks:
            if task.description != name and task.fields["state"] == RUNNING:
                self._progress.stop_task(task.id)
                self._progress.update(task.id, state=state)


class _State(ProgressColumn):
    """A spinner, then a tick or a cross."""

    def __init__(self, plain: bool) -> None:
        super().__init__()
        self._spinner = SpinnerColumn("line" if plain else "dots")
        self._marks = (
            {DONE: ("ok", "green"), STOPPED: ("x", "red")} if plain else {DONE: ("✔", "green"), STOPPED: ("✘", "red")}
        )

    def render(self, task: Task) -> Any:
        mark = self._marks.get(task.fields["state"])
        return Text(*mark) if mark else self._spinner.render(task)


class _Rows(ProgressColumn):
    """Rows done, rows a second, time spent."""

    def render(self, task: Task) -> Text:
        elapsed = (task.finished_time if task.finished_time is not None else task.elapsed) or 0.0
        return Text(_figures(int(task.completed), None if task.total is None else int(task.total), elapsed), "dim")


class _Plain:
    """A line when a stage starts, every ten seconds while it runs, and when it ends."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began: dict[str, float] = {}
        self._last: dict[str, tuple[float, int, int]] = {}
        self._ended: set[str] = set()

    def start(self) -> None:
        """Nothing to open."""

    def stop(self) -> None:
        """Nothing to close."""

    def show(self, name: str, done: int, total: int) -> None:
        now = time.monotonic()
        if name not in self._began:
            self._began[name] = now
            if not total or done < total:
                self._say(name, "starts", done, total, now)
        printed = self._last.get(name, (now, 0, 0))[0]
        if total and done >= total:
            self._last[name] = (now, done, total)
            self._end(name, DONE)
        elif now - printed >= PLAIN_EVERY:
            self._say(name, RUNNING, done, total, now)
        else:
            self._last[name] = (printed, done, total)

    def end_others(self, name: str | None, state: str) -> None:
        for other in self._began:
            if other != name:
                self._end(other, state)

    def _end(self, name: str, state: str) -> None:
        if name not in self._ended:
            self._ended.add(name)
            _, done, total = self._last[name]
            self._say(name, state, done, total, time.monotonic())

    def _say(self, name: str, state: str, done: int, total: int, now: float) -> None:
        self._last[name] = (now, done, total)
        figures = _figures(done, total or None, now - self._began[name])
        self._console.print(f"{name} {state}: {figures}", markup=False, highlight=False, soft_wrap=True)


def _figures(done: int, total: int | None, seconds: float) -> str:
    rate = f"{done / seconds:,.0f}/s" if seconds > 0 and done else "–/s"
    share = f"{done:,}" if total is None else f"{done:,}/{total:,}"
    return f"{share}  {rate}  {duration(seconds)}"
