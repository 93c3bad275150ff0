"""When a stage that stands still says why, by a clock that the test turns."""

from __future__ import annotations

import logging

import pytest

from repair_ray.config import FaultConfig, PoolConfig
from repair_ray.scheduling.asks import FEEDING, of_pool
from repair_ray.scheduling.stall import Stall, Waiting


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def watch(seen: Waiting, clock: Clock, **faults: float) -> Stall:
    asks = [of_pool(PoolConfig(actors=3, num_gpus=1)), FEEDING]
    return Stall("round-1/edits", asks, FaultConfig.model_validate(faults), look=lambda: seen, clock=clock)


def turn(stall: Stall, clock: Clock, seconds: int, done: int = 0) -> None:
    for _ in range(seconds):
        clock.now += 1
        stall.tell(done)


def test_it_says_what_is_missing_each_time(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    stall = watch(Waiting(2, {"CPU": 4.0}), clock, stall_seconds=10)
    with caplog.at_level(logging.WARNING):
        turn(stall, clock, 9)
        assert caplog.messages == []
        turn(stall, clock, 16)
    first, second = caplog.messages
    assert first.startswith(
        "round-1/edits: no row was finished for 10 s: 2 of its actors wait for a node "
        "(3 actors of 1 CPUs and 1 GPUs; free in the cluster: 4 CPUs, 0 GPUs)"
    )
    assert first.endswith("it goes on when there is room, or lower pool.actors")
    assert "for 20 s" in second
    assert stall.given_up is None


def test_a_row_begins_the_time_anew(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    stall = watch(Waiting(0, {"CPU": 4.0}), clock, stall_seconds=10, stop_seconds=12)
    with caplog.at_level(logging.WARNING):
        for done in range(5):
            turn(stall, clock, 9, done)
        assert caplog.messages == []
        turn(stall, clock, 3, 4)
    assert caplog.messages == [
        "round-1/edits: no row was finished for 10 s; its actors have their nodes, and start or work"
    ]
    assert stall.given_up is None


def test_it_gives_up_where_a_limit_is_set() -> None:
    clock = Clock()
    stall = watch(Waiting(0, {"CPU": 0.0}), clock, stop_seconds=30)
    turn(stall, clock, 29)
    assert stall.given_up is None
    turn(stall, clock, 2)
    assert stall.given_up == (
        "round-1/edits: no row was finished for 30 s: its actors have their nodes, and no CPU is free for the tasks "
        "that read and write. It was stopped by faults.stop_seconds=30"
    )


def test_a_cluster_that_does_not_answer_is_told(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()

    def lost() -> Waiting:
        raise ConnectionError

    stall = Stall("round-1/edits", [], FaultConfig(stall_seconds=1), look=lost, clock=clock)
    with caplog.at_level(logging.WARNING):
        turn(stall, clock, 1)
    assert caplog.messages == ["round-1/edits: no row was finished for 1 s, and Ray does not say why (ConnectionError)"]
