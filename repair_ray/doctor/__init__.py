"""What to look at before a long run: packages, cluster, data, models, endpoints, and a trial of a few rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from repair_ray.config import Config
from repair_ray.doctor.text import one_line
from repair_ray.report.findings import Finding

if TYPE_CHECKING:
    from repair_ray.doctor.cluster import Cluster
    from repair_ray.doctor.data import FirstRows
    from repair_ray.doctor.models import Place

__all__ = ["Finding", "examine"]


def silent(doing: str) -> None:
    """Tells nobody what is being checked."""


def examine(config: Config, *, trial: bool = True, tell: Callable[[str], None] = silent) -> list[Finding]:
    """Every check of a config, in the order in which faults should be mended.

    What is diagnosed is a finding, never an exception, and the run directory is not touched. Nothing is downloaded but
    by a trial, which loads what the run would. Ray stays connected, as after a run.

    Args:
        trial: also run a few rows through every stage, unless something else than an endpoint has failed before.
        tell: called with what is being checked.
    """
    with ExitStack() as opened:
        examination = _Examination(config, tell, opened)
        for name in ("packages", "retriever", "output", "cluster", "data", "models", "memory"):
            examination.check(name, getattr(examination, name))
        blocked = any(finding.state == "failed" for finding in examination.found)
        # A trial shows what a stage makes of an endpoint that fails.
        examination.check("endpoints", examination.endpoints)
        if not trial:
            examination.found.append(Finding("trial", "skipped", "left out"))
        elif blocked:
            examination.found.append(Finding("trial", "skipped", "mend what has failed first"))
        else:
            examination.check("trial", examination.trial)
        return examination.found


class _Examination:
    """The checks, each of which may leave what a later one needs. Imports stand in the checks: a package that is
    missing keeps none of the others from being made.
    """

    def __init__(self, config: Config, tell: Callable[[str], None], opened: ExitStack) -> None:
        self.config, self.tell, self._opened = config, tell, opened
        self.found: list[Finding] = []
        self._folder: Path | None = None
        self._parameters: int | None = None
        self._cluster: Cluster | None = None
        self._places: list[Place] = []
        self._first: FirstRows | None = None

    def check(self, name: str, make: Callable[[], Sequence[Finding]]) -> None:
        """Make a check; one that ends by an error of its own is a finding too."""
        self.tell(name)
        try:
            self.found += make()
        except Exception as error:
            fact = f"cannot be checked: {type(error).__name__}: {one_line(error)}"
            self.found.append(Finding(name, "failed", fact, "mend what has failed above first"))

    def packages(self) -> Sequence[Finding]:
        from repair_ray.doctor.packages import check_packages

        return check_packages(self.config)

    def retriever(self) -> Sequence[Finding]:
        from repair_ray.doctor.models import check_retriever, parameters

        finding = check_retriever(self.config)
        if finding.state != "failed":
            self._parameters = parameters(self.config)
        return [finding]

    def output(self) -> Sequence[Finding]:
        from repair_ray.doctor.output import check_output, scratch, unwritable

        try:
            self._folder = self._opened.enter_context(scratch(self.config))
        except OSError as error:
            return [unwritable(self.config, error)]
        return [check_output(self.config, self._folder, self._parameters)]

    def cluster(self) -> Sequence[Finding]:
        from repair_ray.doctor.cluster import check_cluster
        from repair_ray.doctor.output import PROBE

        self._cluster = check_cluster(self.config, self._folder / PROBE if self._folder else None)
        return self._cluster.findings

    def data(self) -> Sequence[Finding]:
        from repair_ray.doctor.data import check_data, rows_needed

        found, self._first = check_data(self.config, rows_needed(self.config))
        return found

    def models(self) -> Sequence[Finding]:
        from repair_ray.doctor.models import find_models

        found, self._places = find_models(self.config)
        return found

    def memory(self) -> Sequence[Finding]:
        from repair_ray.doctor.memory import check_memory

        nodes = self._cluster.nodes if self._cluster else []
        return check_memory(self.config, nodes, self._places, self._parameters)

    def endpoints(self) -> Sequence[Finding]:
        from repair_ray.doctor.endpoint import check_endpoints

        return check_endpoints(self.config)

    def trial(self) -> Sequence[Finding]:
        from repair_ray.doctor.trial import check_trial

        assert self._first is not None and self._folder is not None, "their checks have not failed"
        return check_trial(self.config, self._first, self._folder, self.tell)
