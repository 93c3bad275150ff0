"""Compiled towers: the same gradients, weights under their own names, and the same dropout in both cached passes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from repair_ray.config import ObjectiveConfig, TrainingConfig
from repair_ray.run import RunError
from repair_ray.training.batches import BatchPlan
from repair_ray.training.compiling import COMPILERS
from repair_ray.training.trainer import Trainer
from tests.training.ddp_worker import TinyModel
from tests.training.test_caching import check_equal, gradients, pairs

needs_compiler = pytest.mark.skipif(not any(map(shutil.which, COMPILERS)), reason="there is no C++ compiler")


@pytest.fixture(autouse=True)
def cold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No program of an earlier test or run is used."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Small(TinyModel):
    """With dropout, and quick to compile."""

    def __init__(self, rate: float = 0.0) -> None:
        super().__init__()
        self.visual = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.Dropout(rate))

    def encode_text(self, tokens: Tensor, normalize: bool = False) -> Tensor:
        return nn.functional.normalize(self.words(tokens).mean(1), dim=-1)


@needs_compiler
def test_gradients_of_a_plain_step_and_of_a_cached_one() -> None:
    expected = gradients(Small(), 6)
    model = Small()
    names = list(model.state_dict())
    programs = torch._dynamo.utils.counters["stats"]
    before = programs["unique_graphs"]
    check_equal(expected, gradients(model, 6, compile=True))
    assert list(model.state_dict()) == names == list(Small().state_dict())
    assert programs["unique_graphs"] == before + 2  # a tower each
    check_equal(gradients(Small(), 8), gradients(Small(), 8, compile=True, micro_batch=3))


@needs_compiler
def test_dropout_is_the_same_in_both_passes_of_a_part() -> None:
    config = TrainingConfig(steps=9, batch_size=6, compile=True, micro_batch=2)
    trainer = Trainer(Small(0.5), pairs(6), config, ObjectiveConfig())
    made: list[Tensor] = []
    encode = trainer._encode

    def recorded(*arguments: Any) -> Any:
        found = encode(*arguments)
        made.append(found[0].detach())
        return found

    trainer._encode = recorded  # type: ignore[method-assign]
    batch = BatchPlan(pairs(6), 6, 0).step(0)
    trainer.step(0, batch, torch.ones(6, 3, 2, 2), torch.ones(6, 5, dtype=torch.int64))
    assert len(made) == 6
    assert all(torch.equal(*passes) for passes in zip(made[:3], made[3:], strict=True))
    assert not torch.equal(made[0], made[1])


def test_a_cpu_without_a_compiler_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RunError, match=r"training\.compile needs a C\+\+ compiler on every worker: install g\+\+"):
        Trainer(Small(), pairs(4), TrainingConfig(compile=True), ObjectiveConfig())
