"""Two and four gloo processes give the same gradients as one, on the same global batches, for every placement and term.

Also with gradient caching, which has to give the gradients of the plain step.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.training.processes import run_processes

WORKER = Path(__file__).with_name("ddp_worker.py")
CASES = ("local", "dispersed", "both", "push_only", "own_scale", "all_terms", "own_negatives")
STEPS = range(3)


def load_worker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ddp_worker", WORKER)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def one() -> dict[str, np.ndarray]:
    worker = load_worker()
    assert set(CASES) == set(worker.CASES) == set(worker.CACHED)
    found: dict[str, np.ndarray] = worker.run(0, 1)
    return found


@pytest.fixture(scope="module", params=[2, 4])
def many(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, np.ndarray]]:
    return run_processes(WORKER, int(request.param), tmp_path_factory.mktemp("gloo"))


def test_workers_have_uneven_batches(many: list[dict[str, np.ndarray]], one: dict[str, np.ndarray]) -> None:
    """The batches under test are the hard ones: 9 anchors for two or four workers, and grids that do not divide."""
    grids = [[int(part[f"grids/{step}"]) for part in many] for step in STEPS]
    assert all(sum(parts) == int(one[f"grids/{step}"]) for step, parts in zip(STEPS, grids, strict=True))
    assert any(len(set(parts)) > 1 for parts in grids)
    assert [int(part["anchors/0"]) for part in many] == {2: [4, 5], 4: [2, 2, 2, 3]}[len(many)]


@pytest.mark.parametrize("case", CASES)
def test_caching_gives_the_gradients_of_the_plain_step(
    case: str, one: dict[str, np.ndarray], many: list[dict[str, np.ndarray]]
) -> None:
    names = [name for name in one if name.startswith(f"{case}/")]
    assert len(names) >= 24
    for name in names:
        for rank, part in enumerate([one, *many]):
            if "/loss/" in name and part is not one:
                continue  # a worker's share of it
            cached = part[name.replace("/", "_cached/", 1)]
            np.testing.assert_allclose(cached, one[name], atol=1e-5, rtol=1e-4, err_msg=f"{name} of {rank}")


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_equal(case: str, one: dict[str, np.ndarray], many: list[dict[str, np.ndarray]]) -> None:
    names = [name for name in one if name.startswith(f"{case}/") and "/loss/" not in name]
    assert {name.split("/", 2)[2] for name in names} >= {"logit_scale", "words.weight", "visual.1.weight"}
    for name in names:
        for rank, part in enumerate(many):
            np.testing.assert_allclose(part[name], one[name], atol=1e-5, rtol=1e-4, err_msg=f"{name} of rank {rank}")
    assert all(np.abs(one[f"{case}/{step}/logit_scale"]) > 1e-3 for step in STEPS)


@pytest.mark.parametrize("case", CASES)
def test_reported_losses_average_to_the_global_loss(
    case: str, one: dict[str, np.ndarray], many: list[dict[str, np.ndarray]]
) -> None:
    losses = [name for name in one if name.startswith(f"{case}/") and "/loss/" in name]
    assert len(losses) == 3 * {"dispersed": 1, "all_terms": 9, "own_negatives": 3}.get(case, 2)
    for name in losses:
        assert np.mean([part[name] for part in many]) == pytest.approx(float(one[name]), abs=1e-5), name


def test_placements_differ(one: dict[str, np.ndarray]) -> None:
    """The equality above is not that of a term without effect."""
    weights = [one[f"{case}/0/visual.1.weight"] for case in CASES]
    for i in range(len(CASES)):
        for j in range(i):
            assert np.abs(weights[i] - weights[j]).max() > 1e-4, (CASES[i], CASES[j])
