"""Which retriever is meant: a run's, before and after repair, or an open_clip model with its weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from repair_ray.config import Config, parse_config
from repair_ray.engines.retriever import RetrieverSpec, has_own_weights, is_file, named_spec, weights_identity
from repair_ray.run import Run, RunError, read_json
from repair_ray.stages.products import ROUND, result_place
from repair_ray.training.trained import TrainedName, spec_of

if TYPE_CHECKING:
    from repair_ray.engines.encoder import Encoder

Which = TrainedName | Literal["both"]
BATCH = 128
BASE: TrainedName = "base"
REPAIRED: TrainedName = "repaired"


@dataclass(frozen=True)
class Named:
    """A retriever, the name that its figures go by, and how many items it takes at a time."""

    label: str
    spec: RetrieverSpec
    batch_size: int = BATCH

    def facts(self) -> dict[str, Any]:
        """What identifies it."""
        weights = weights_identity(self.spec.weights)
        return {"model": self.spec.model, "weights": weights, "precision": self.spec.precision}


def is_run(target: str) -> bool:
    """Whether a run lies there."""
    return (Path(target) / "config.json").is_file()


def run_of(target: str) -> tuple[Run, Config]:
    """The run at a path and the config that it was made with. Raises `RunError` where there is none."""
    tree = read_json(Path(target) / "config.json")
    if tree is None:
        raise RunError(f"there is no run at {target}")
    return Run(target), parse_config(tree, source=f"{target}/config.json")


def retrievers_of(
    target: str,
    which: Which = "both",
    pretrained: str | None = None,
    precision: str | None = None,
    place: str | None = None,
) -> list[Named]:
    """The retrievers that `target` names: a run directory, or an open_clip model with `pretrained`.

    The repaired one is of the round at `place`; of the one that the run has ended with where it is unset.

    Raises:
        RunError: the run is not trained yet, or settings that do not go together.
    """
    if is_run(target):
        if pretrained is not None or precision is not None:
            raise RunError(f"{target} is a run, whose retrievers have weights of their own: leave --pretrained out")
        wanted = (BASE, REPAIRED) if which == "both" else (which,)
        run, config = run_of(target)
        place = place or (ROUND if wanted == (BASE,) else result_place(run))
        return [Named(name, spec_of(run, config, name, place), config.retriever.batch_size) for name in wanted]
    if Path(target).is_dir():
        raise RunError(f"{target} is no run directory: it holds no config.json")
    if pretrained is None and not has_own_weights(target):
        raise RunError(f"{target} is no run, and as a model it needs weights: --pretrained, a tag or a checkpoint file")
    spec = named_spec(target, pretrained, precision or "fp32")
    return [Named(Path(target).stem if target.endswith(".json") else target, spec)]


def load(named: Named) -> Encoder:
    """Build the retriever on the GPU, or on the CPU where there is none.

    Raises:
        RetrieverError: it cannot be built.
    """
    import torch

    from repair_ray.engines.encoder import Encoder, check_tag

    spec = named.spec
    if spec.weights and spec.weights != spec.model and not is_file(spec.weights):
        check_tag(spec.model, spec.weights)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return Encoder(spec, device, named.batch_size)


def load_all(found: Sequence[Named]) -> list[Encoder]:
    return [load(named) for named in found]
