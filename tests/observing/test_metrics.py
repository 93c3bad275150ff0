"""Single values that stand for a bucket of the histogram; what Ray exports is read in integration/test_metrics.py."""

from __future__ import annotations

import pytest

from repair_ray.observing.meter import BATCH_SECONDS
from repair_ray.observing.metrics import inside


@pytest.mark.parametrize(
    ("bucket", "mean", "value"),
    [
        (4, 0.5, 0.5),
        (4, 2.0, 1.0),
        (4, 0.1, 0.3003),
        (0, 0.004, 0.004),
        (0, 5.0, 0.01),
        (10, 400.0, 400.0),
        (10, 1.0, 300.3),
    ],
)
def test_the_nearest_value_inside_a_bucket(bucket: int, mean: float, value: float) -> None:
    assert inside(bucket, mean) == pytest.approx(value)


def test_every_bucket_keeps_its_values() -> None:
    for bucket, upper in enumerate(BATCH_SECONDS):
        for mean in (0.0, upper / 2, 1e6):
            found = inside(bucket, mean)
            assert sum(found > end for end in BATCH_SECONDS) == bucket
