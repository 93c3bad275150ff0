"""The peers of the trainer's benchmark learn what the trainer learns; and what is told where they would not."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from benchmarks.train import QUICK, Ours, PlainLoop, both_ways, check, made_steps, schedule
from repair_ray.config import TrainingConfig


def test_cross_entropy_of_rows_and_columns_by_hand() -> None:
    # Rows: softmax [.5, .5] for both; columns: of (0, 0) and of (log 3, log 3), again halves.
    logits = torch.tensor([[0.0, 0.0], [math.log(3), math.log(3)]])
    rows, columns = math.log(2), (math.log(4) + math.log(4 / 3)) / 2
    assert both_ways(logits).item() == pytest.approx((rows + columns) / 2)
    assert both_ways(logits.expand(3, 2, 2)).item() == pytest.approx((rows + columns) / 2)


def test_the_rate_warms_up_and_falls_to_zero() -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([weight])
    rate = schedule(optimizer, TrainingConfig(steps=20, lr=1.0, warmup=0.2))
    found = []
    for step in (0, 3, 4, 12, 20):
        rate(step)
        found.append(optimizer.param_groups[0]["lr"])
    assert found == pytest.approx([0.25, 1.0, 1.0, 0.5, 0.0])


def test_the_same_weights_and_a_difference_is_told(tmp_path: Path) -> None:
    config = TrainingConfig(steps=4, batch_size=QUICK.anchors)
    steps = made_steps(QUICK, True)
    assert len(steps[0][0].grid_images) == QUICK.anchors and steps[0][1].shape[0] == 3 * QUICK.anchors
    ours, plain = Ours(QUICK, config, steps, True), PlainLoop(QUICK, config, steps)
    assert ours.turn() > 0 and plain.turn() > 0
    check(ours, plain)
    plain.turn()
    with pytest.raises(AssertionError, match="apart"):
        check(ours, plain)
