"""Two gloo processes give the same losses and gradients as one, for every term of hard-negative mixing."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tests.training import mixing_worker


@pytest.fixture(scope="module")
def one() -> dict[str, np.ndarray]:
    return mixing_worker.run(0, 1)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, np.ndarray]]:
    folder = tmp_path_factory.mktemp("gloo")
    outputs = [folder / f"{rank}.npz" for rank in range(2)]
    program = [sys.executable, str(mixing_worker.__file__)]
    processes = [
        subprocess.Popen(
            [*program, str(rank), "2", str(folder / "meeting"), str(output)], stderr=subprocess.PIPE, text=True
        )
        for rank, output in enumerate(outputs)
    ]
    for process in processes:
        try:
            _, errors = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            for other in processes:
                other.kill()
            raise
        assert process.returncode == 0, errors[-3000:]
    return [dict(np.load(output)) for output in outputs]


def test_the_shares_are_uneven(two: list[dict[str, np.ndarray]]) -> None:
    assert [int(part["items"]) for part in two] == [5, 6]


@pytest.mark.parametrize("term", mixing_worker.TERMS)
def test_losses_and_gradients_are_equal(
    term: str, one: dict[str, np.ndarray], two: list[dict[str, np.ndarray]]
) -> None:
    names = [name for name in one if name.startswith(f"{term}/")]
    assert {name.rpartition("/")[2] for name in names} >= {"loss", "left.weight", "right.bias", "logit_scale"}
    for name in names:
        assert np.abs(one[name]).max() > 1e-4, name
        for rank, part in enumerate(two):
            np.testing.assert_allclose(part[name], one[name], atol=1e-5, rtol=1e-4, err_msg=f"{name} of rank {rank}")


def test_terms_differ(one: dict[str, np.ndarray]) -> None:
    """The equality above is not that of mixtures that never come about."""
    losses = [float(one[f"{term}/0/loss"]) for term in mixing_worker.TERMS]
    assert len({round(loss, 4) for loss in losses}) == len(losses)
