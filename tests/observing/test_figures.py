"""Figures of a pool, a rate and what is left: by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from repair_ray.observing.figures import PoolSpec, Seen, Watched, named, pool_facts, stage_facts, totals
from repair_ray.observing.meter import BATCH_SECONDS, Meter, Record
from repair_ray.observing.rate import Rate, seconds_left

POOL = PoolSpec("EmbedItems", "EmbedItems", "pool", actors=2, gpus=0.5)


def record(**values: Any) -> Record:
    return Record(began=0, seen=0, **values)


def test_idle_gpu_seconds_are_of_all_that_is_not_work() -> None:
    # 10 + 30 s alive, 4 + 21 s busy: half a GPU each was idle for 6 + 9 s.
    records = [record(alive=10.0, setup=5.0, busy=4.0), record(alive=30.0, setup=3.0, busy=21.0)]
    found = pool_facts(POOL, records, None, seconds=40.0)
    assert found["idle_gpu_seconds"] == 7.5
    assert (found["alive_seconds"], found["setup_seconds"], found["busy_seconds"]) == (40, 8, 25)
    assert found["idle_seconds"] == 1 + 6
    assert found["utilisation"] == 0.625
    assert (found["processes"], found["actors"], found["gpus"]) == (2, 2, 0.5)
    assert found["queue_mean"] is None and found["queue_most"] is None, "nobody has looked"


def test_rates_are_by_the_seconds_of_the_stage() -> None:
    records = [
        record(rows_in=100, rows_out=120, input_tokens=900, output_tokens=100),
        record(rows_in=60, rows_out=60, input_tokens=0, output_tokens=0, retries=2),
    ]
    seen = Seen(queue_sum=12, queue_looks=8, queue_most=5, spilled=4096)
    found = pool_facts(POOL, records, seen, seconds=20.0)
    assert (found["rows_in"], found["rows_out"], found["rows_per_second"]) == (160, 180, 8)
    assert found["tokens_per_second"] == 50
    assert (found["queue_mean"], found["queue_most"], found["spilled_bytes"], found["retries"]) == (1.5, 5, 4096, 2)


def test_nothing_measured_yet() -> None:
    found = pool_facts(POOL, [], None, seconds=0.0)
    assert found["utilisation"] is None and found["rows_per_second"] is None and found["busy_seconds"] == 0


def test_buckets_are_summed_place_by_place() -> None:
    one, other = ([0] * (len(BATCH_SECONDS) + 1) for _ in range(2))
    one[2], other[2], other[-1] = 3, 4, 1
    found = totals([record(buckets=one), record(buckets=other)])
    assert found.buckets[2] == 7 and found.buckets[-1] == 1 and sum(found.buckets) == 8


def test_two_pools_of_one_class_have_names_of_their_own() -> None:
    made = named([("Add", "pool", 1, 0), ("Mine", "mining.pool", 2, 1), ("Add", "edit.pool", 3, 0)])
    assert [(pool.name, pool.kind, pool.key) for pool in made] == [
        ("Add", "Add", "pool"),
        ("Mine", "Mine", "mining.pool"),
        ("Add-2", "Add", "edit.pool"),
    ]


def test_a_stage_is_told_from_its_folder_over_several_starts(tmp_path: Path) -> None:
    pools = named([("Embed", "pool", 2, 1.0), ("Score", "selection.pool", 1, 0.0)])
    watched = Watched.read(tmp_path, pools)
    watched.seconds = 8.0
    watched.seen["Embed"] = Seen(queue_sum=6, queue_looks=2, queue_most=4, spilled=10)
    watched.keep(tmp_path)
    again = Watched.read(tmp_path)
    assert again == watched
    for rows in (3, 5):
        meter = Meter(tmp_path / "Embed", clock=lambda: 0.0, beat=None)
        with meter.batch(rows):
            pass
    (embed,) = stage_facts(tmp_path)
    assert (embed["pool"], embed["rows_in"], embed["rows_per_second"], embed["queue_mean"]) == ("Embed", 8, 1, 3)
    assert stage_facts(tmp_path / "none") == []


class TestRate:
    def test_rows_a_second_over_the_window(self) -> None:
        at = [0.0]
        rate = Rate(1_000, window=60, clock=lambda: at[0])  # an earlier start had done 1,000
        assert rate.tell(1_000) is None
        found = []
        for second, done in ((10, 1_100), (30, 1_300), (60, 1_600), (90, 1_600), (100, 1_900)):
            at[0] = second
            found.append(rate.tell(done))
        # At 90 s the window begins with the look at 30 s: 300 rows in 60 s. At 100 s with that at 30 s still, as the
        # next one, of 60 s, is not yet 60 s old: 600 rows in 70 s.
        assert found == [10, 10, 10, 5, pytest.approx(600 / 70)]

    def test_nothing_for_a_whole_window(self) -> None:
        at = [0.0]
        rate = Rate(0, window=60, clock=lambda: at[0])
        for second in range(1, 200):
            at[0] = second
            found = rate.tell(5)
        assert found is None

    @pytest.mark.parametrize(
        ("done", "total", "rate", "left"),
        [
            (250, 1_000, 7.5, 100.0),
            (1_000, 1_000, 7.5, 0.0),
            (5, None, 1.0, None),
            (5, 10, None, None),
            (5, 10, 0, None),
        ],
    )
    def test_what_is_left(self, done: int, total: int | None, rate: float | None, left: float | None) -> None:
        assert seconds_left(done, total, rate) == left
