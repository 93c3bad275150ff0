"""Two gloo processes give the same gradients as one, for every term and however the rows are dealt out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.training.objectives import terms_worker
from tests.training.processes import run_processes

PARAMETERS = ("visual.weight", "visual.bias", "text.weight", "text.bias", "logit_scale")


@pytest.fixture(scope="module")
def one() -> dict[str, np.ndarray]:
    return terms_worker.run(0, 1)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, np.ndarray]]:
    return run_processes(Path(terms_worker.__file__), 2, tmp_path_factory.mktemp("gloo"))


@pytest.mark.parametrize("term", terms_worker.TERMS)
@pytest.mark.parametrize("deal", terms_worker.DEALS)
def test_gradients_and_loss_are_equal(
    deal: str, term: str, one: dict[str, np.ndarray], two: list[dict[str, np.ndarray]]
) -> None:
    for parameter in PARAMETERS:
        name = f"{deal}/{term}/{parameter}"
        for rank, part in enumerate(two):
            np.testing.assert_allclose(part[name], one[name], atol=1e-6, rtol=1e-4, err_msg=f"{name} of rank {rank}")
    loss = f"{deal}/{term}/loss"
    assert np.mean([part[loss] for part in two]) == pytest.approx(float(one[loss]), abs=1e-6)


@pytest.mark.parametrize("term", terms_worker.TERMS)
def test_equal_gradients_are_not_those_of_terms_without_effect(term: str, one: dict[str, np.ndarray]) -> None:
    for parameter in PARAMETERS:
        largest = np.abs(one[f"uneven/{term}/{parameter}"]).max()
        if parameter == "logit_scale" and term in ("soft", "intra"):
            assert largest == 0  # they have a temperature of their own
        else:
            assert largest > 1e-3, parameter
    assert one[f"uneven/{term}/loss"] > 0.01


@pytest.mark.parametrize("term", terms_worker.TERMS)
def test_nothing_gives_zero(term: str, one: dict[str, np.ndarray], two: list[dict[str, np.ndarray]]) -> None:
    deals = ["nothing", "no negatives"] if term == "own" else ["nothing"]
    for part in (one, *two):
        for deal in deals:
            assert all(np.all(part[f"{deal}/{term}/{name}"] == 0) for name in (*PARAMETERS, "loss"))


def test_workers_have_different_numbers_of_negatives() -> None:
    parts = [terms_worker.rows_of("uneven", rank, 2) for rank in range(2)]
    assert [len(part.mask) for part in parts] == [6, 3]
    assert parts[0].mask.sum() > parts[1].mask.sum() > 0
