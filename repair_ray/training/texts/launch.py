"""A text-only training run as the driver sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from repair_ray.config import ClusterConfig
from repair_ray.training.launch import CLUSTER, launch
from repair_ray.training.texts.job import TextJob


def train_texts(
    job: TextJob, progress: Callable[[str, int, int], None], *, cluster: ClusterConfig = CLUSTER
) -> dict[str, Any]:
    """Train to the end, resuming what lies under the job's name; see `launch`."""
    return launch(job, _worker, progress, cluster=cluster)


def _worker(config: dict[str, Any]) -> None:
    # Imported where it runs: Ray Train's controller unpickles this function too, and needs no model library.
    from repair_ray.training.texts.worker import work

    work(config["job"], config["state"])
