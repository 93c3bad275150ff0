"""Efficiency of many GPUs and of a graph, by hand."""

from __future__ import annotations

import time

import numpy as np
import pytest

from benchmarks.clocked import Batch
from benchmarks.scale import FULL, all_begun, efficiency
from benchmarks.stream import Sizes, slowest
from benchmarks.timed import TimedEditor, TimedEncoder


def batch(process: str, begun: float, ended: float) -> Batch:
    return Batch(process, begun, ended, 8, 0)


def test_efficiency_counts_model_time_from_when_all_have_begun() -> None:
    # b begins at 10, in the middle of a batch of a, half of which counts. Then a has two batches until 20, and b two
    # until 19, each of 4 s of model time: (0.5 + 2 + 2) * 4 of 2 * 10 seconds.
    batches = [batch("a", 3.0, 8.0), batch("a", 8.0, 12.0), batch("b", 10.0, 14.5), batch("a", 12.0, 16.0)]
    batches += [batch("b", 14.5, 19.0), batch("a", 16.0, 20.0)]
    assert all_begun(batches) == 10.0
    assert efficiency(batches, 2, 4.0) == pytest.approx(0.9)


def test_one_gpu_without_a_gap_is_all_at_work() -> None:
    assert efficiency([batch("a", 0.0, 2.0), batch("a", 2.0, 4.0)], 1, 2.0) == 1.0
    assert efficiency([batch("a", 0.0, 2.0), batch("a", 3.0, 5.0)], 1, 2.0) == pytest.approx(0.8)


def test_more_gpus_have_more_batches_each() -> None:
    assert [FULL.total(gpus) for gpus in FULL.gpus] == [12, 56, 320, 2816]


def test_the_slowest_pool_is_that_of_the_editors_or_the_retriever() -> None:
    # 10 rows of 3 edits of 2 s on 2 editors: 30 s. Three blocks of 4 rows at most, 11 s each: 33 s.
    assert slowest(Sizes(10, 2.0, 3, 2, 4, 1.0)) == 30.0
    assert slowest(Sizes(10, 2.0, 3, 2, 4, 11.0)) == 33.0


def test_timed_engines_take_their_time_and_nothing_takes_none() -> None:
    encoder = TimedEncoder(0.1, 128)
    begun = time.monotonic()
    vectors = encoder.encode_texts(["a", "b", "c"])
    assert time.monotonic() - begun >= 0.1
    assert vectors.shape == (3, 128) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    begun = time.monotonic()
    assert encoder.encode_images([]).shape == (0, 128)
    assert time.monotonic() - begun < 0.05
    assert TimedEditor(0.0).edit(b"", "", 0).startswith(b"\xff\xd8")
