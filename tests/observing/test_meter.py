"""A process measures itself: each figure by hand, from a clock that the test moves."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from repair_ray.observing.meter import BATCH_SECONDS, Meter, read_records


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


def meter(clock: Clock, folder: Path | None = None) -> Meter:
    return Meter(folder, clock=clock, now=lambda: 1_000 + clock.at, beat=None)


def test_setup_work_and_waiting_by_hand(clock: Clock) -> None:
    made = meter(clock)
    clock.at += 5
    made.ready()
    clock.at += 2  # idle
    with made.batch(8):
        clock.at += 3
        made.count(rows_out=9, input_tokens=70, output_tokens=20)
    clock.at += 1  # idle
    with made.batch(4):
        clock.at += 0.5
        made.count(rows_out=4, retries=1)
    clock.at += 4  # idle
    record = made.record
    assert (record.alive, record.setup, record.busy) == (15.5, 5, 3.5)
    assert (record.batches, record.rows_in, record.rows_out) == (2, 12, 13)
    assert (record.input_tokens, record.output_tokens, record.retries) == (70, 20, 1)
    assert (record.began, record.seen) == (1_100, 1_115.5)
    # 0.5 s lies in (0.3, 1], and 3 s in (1, 3].
    found = {upper: n for upper, n in zip(BATCH_SECONDS, record.buckets, strict=False) if n}
    assert found == {1.0: 1, 3.0: 1} and sum(record.buckets) == 2


def test_a_process_that_is_not_ready_has_only_set_up(clock: Clock) -> None:
    made = meter(clock)
    clock.at += 7
    assert (made.record.setup, made.record.alive) == (7, 7)
    made.ready()
    clock.at += 1
    made.ready()
    assert made.record.setup == 7, "set-up ends once"


def test_batches_at_the_same_time_are_busy_once(clock: Clock) -> None:
    made = meter(clock)
    made.ready()
    with made.batch(1):
        clock.at += 2
        with made.batch(1):
            clock.at += 3
        assert made.record.busy == 5, "a batch that goes on counts so far"
        clock.at += 4
    assert made.record.busy == 9 and made.record.batches == 2
    assert made.record.buckets[BATCH_SECONDS.index(3.0)] == 1 and made.record.buckets[BATCH_SECONDS.index(10.0)] == 1


def test_a_batch_that_raises_counts(clock: Clock) -> None:
    made = meter(clock)
    with pytest.raises(KeyError), made.batch(3):
        clock.at += 1
        raise KeyError
    assert (made.record.busy, made.record.batches, made.record.rows_in) == (1, 1, 3)
    clock.at += 5
    assert made.record.busy == 1


def test_waiting_for_data_is_no_work(clock: Clock) -> None:
    made = meter(clock)
    made.ready()
    with made.waiting():
        clock.at += 2
    with made.batch():
        clock.at += 6
    assert (made.record.waited, made.record.busy) == (2, 6)


def test_a_batch_longer_than_all_buckets(clock: Clock) -> None:
    made = meter(clock)
    with made.batch(1):
        clock.at += 301
    assert made.record.buckets[-1] == 1


def test_the_file_holds_the_last_batch_when_the_process_is_gone(clock: Clock, tmp_path: Path) -> None:
    made = meter(clock, tmp_path)
    with made.batch(5):
        clock.at += 1
    (record,) = read_records(tmp_path)  # nobody has closed it
    assert (record.rows_in, record.busy) == (5, 1)
    with made.batch(6):
        clock.at += 1
    made.close()
    made.close()
    (record,) = read_records(tmp_path)
    assert (record.rows_in, record.busy, record.alive) == (11, 2, 2)


def test_each_process_has_a_file_of_its_own_and_broken_ones_are_left_out(clock: Clock, tmp_path: Path) -> None:
    for rows in (1, 2):
        with meter(clock, tmp_path).batch(rows):
            pass
    (tmp_path / "cut.json").write_text('{"began": 1')
    (tmp_path / "other.json").write_text('{"colour": 1}')
    (tmp_path / "list.json").write_text("[]")
    assert sorted(record.rows_in for record in read_records(tmp_path)) == [1, 2]
    assert read_records(tmp_path / "none") == []


def test_large_numbers_fit(clock: Clock, tmp_path: Path) -> None:
    made = meter(clock, tmp_path)
    clock.at += 1e9
    many = 10**15
    made.count(rows_in=many, rows_out=many, input_tokens=many, output_tokens=many, retries=many)
    made.close()
    (path,) = tmp_path.iterdir()
    assert len(path.read_bytes()) == 1024
    assert json.loads(path.read_bytes())["rows_out"] == many


def test_a_thread_tells_of_a_process_that_only_waits(tmp_path: Path) -> None:
    made = Meter(tmp_path, beat=0.02)
    (before,) = read_records(tmp_path)
    deadline = time.monotonic() + 10
    while read_records(tmp_path)[0].alive <= before.alive and time.monotonic() < deadline:
        time.sleep(0.02)
    made.close()
    assert read_records(tmp_path)[0].alive > before.alive


def test_batches_of_many_threads_are_all_counted(tmp_path: Path) -> None:
    made = Meter(tmp_path, beat=0.01)

    def work() -> None:
        for _ in range(50):
            with made.batch(2):
                made.count(rows_out=2)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made.close()
    (record,) = read_records(tmp_path)
    assert (record.batches, record.rows_in, record.rows_out, sum(record.buckets)) == (200, 400, 400, 200)


def test_measuring_costs_less_than_half_a_percent_of_a_tenth_of_a_second(tmp_path: Path) -> None:
    made = Meter(tmp_path)
    costs = []
    for _ in range(200):
        begun = time.perf_counter()
        with made.batch(32):
            made.count(rows_out=32)
        costs.append(time.perf_counter() - begun)
    made.close()
    assert sorted(costs)[100] < 0.005 * 0.1
