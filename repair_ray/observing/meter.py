"""One process of a pool measures itself: time of set-up, work and waiting, rows, tokens, batches done again.

What it has measured lies in a small file of its own, which is written over in place after each batch: a process may be
killed at any moment, and the last write stands. No Ray: the driver reads the files, and so does `repair-ray status`.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

# Upper ends of the histogram of seconds a batch; one more bucket holds what took longer.
BATCH_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
BEAT_SECONDS = 1.0
# Of a file: always as many, so that no write is shorter than the one before.
_BYTES = 1024


@dataclass
class Record:
    """What one process has done. All times are seconds, `began` and `seen` since 1970.

    Attributes:
        alive: since the process began its set-up. setup: until it was ready for its first batch.
        busy: with at least one batch at work. waited: of training, for the data of the next step.
        batches: batches, or steps of training. retries: batches, or calls of a model, that were made again.
        buckets: batches by their seconds, as `BATCH_SECONDS` cuts them.
    """

    began: float
    seen: float
    alive: float = 0.0
    setup: float = 0.0
    busy: float = 0.0
    waited: float = 0.0
    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    retries: int = 0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BATCH_SECONDS) + 1))


class Meter:
    """Measures the process that it is made in, from then on.

    Args:
        folder: where the pool's files lie; None: nothing is written.
        clock: seconds, rising. now: seconds since 1970.
        beat: a thread writes the file so often, so that others see a process that works on a long batch, or waits;
            None: only work writes it.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        beat: float | None = BEAT_SECONDS,
    ) -> None:
        self._clock, self._now = clock, now
        self._began = clock()
        self._record = Record(now(), now())
        self._ready = False
        self._at_work = 0
        self._busy_since = 0.0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._file: int | None = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._path = folder / f"{uuid.uuid4().hex}.json"
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o644)
            self._keep()
            if beat is not None:
                threading.Thread(target=self._beats, args=(beat,), daemon=True).start()

    @property
    def record(self) -> Record:
        """What has been measured until now."""
        with self._lock:
            return self._now_record()

    def ready(self) -> None:
        """Set-up is over; what comes until the first batch is idle time. Counts once."""
        with self._lock:
            if not self._ready:
                self._ready, self._record.setup = True, self._clock() - self._began
        self._keep()

    @contextlib.contextmanager
    def batch(self, rows: int = 0) -> Iterator[None]:
        """Work on a batch of so many rows. Several may go on at a time: busy is while there is any."""
        with self._lock:
            begun = self._clock()
            if not self._at_work:
                self._busy_since = begun
            self._at_work += 1
        try:
            yield
        finally:
            with self._lock:
                ended, record = self._clock(), self._record
                self._at_work -= 1
                if not self._at_work:
                    record.busy += ended - self._busy_since
                record.batches += 1
                record.rows_in += rows
                record.buckets[bisect_left(BATCH_SECONDS, ended - begun)] += 1
            self._keep()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait for the data of a training step."""
        begun = self._clock()
        try:
            yield
        finally:
            with self._lock:
                self._record.waited += self._clock() - begun

    def count(
        self, *, rows_in: int = 0, rows_out: int = 0, input_tokens: int = 0, output_tokens: int = 0, retries: int = 0
    ) -> None:
        """Add what a batch has made. Told inside it, the batch's end writes it down; else the next beat does."""
        with self._lock:
            record = self._record
            record.rows_in += rows_in
            record.rows_out += rows_out
            record.input_tokens += input_tokens
            record.output_tokens += output_tokens
            record.retries += retries

    def close(self) -> None:
        """Write a last time, and stop. Safe to call again."""
        self._ended.set()
        self._keep()
        with self._lock:
            file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _now_record(self) -> Record:
        record, at = self._record, self._clock()
        record.alive, record.seen = at - self._began, self._now()
        busy = record.busy + (at - self._busy_since if self._at_work else 0.0)
        setup = record.setup if self._ready else record.alive
        return Record(**{**vars(record), "busy": busy, "setup": setup, "buckets": list(record.buckets)})

    def _keep(self) -> None:
        with self._lock:
            if self._file is not None:
                with contextlib.suppress(OSError):  # a full disk stops the work itself, which says so
                    os.pwrite(self._file, _line(self._now_record()), 0)

    def _beats(self, seconds: float) -> None:
        while not self._ended.wait(seconds):
            self._keep()
            # On a network storage, others see what was written once a file is closed.
            with contextlib.suppress(OSError):
                os.close(os.open(self._path, os.O_WRONLY))


def read_records(folder: Path) -> list[Record]:
    """The records of a pool's processes, those that are gone too; one that is just being written is left out."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append(Record(**json.loads(path.read_bytes())))
        except (OSError, ValueError, TypeError):
            continue
    return found


def _line(record: Record) -> bytes:
    rounded = {key: round(value, 4) if isinstance(value, float) else value for key, value in vars(record).items()}
    return json.dumps(rounded).encode().ljust(_BYTES)
