"""The experts: who they are, whether they are there, and the features that they give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.config import Config, ExpertConfig, parse_config
from repair_ray.engines.retriever import (
    RetrieverError,
    RetrieverSpec,
    has_own_weights,
    is_file,
    named_spec,
    sees_texts_only,
    weights_identity,
)
from repair_ray.multimatch.products import EXPERTS, GALLERY, QUERIES, usable
from repair_ray.run import IMAGES, Run, RunError, read_json
from repair_ray.stages.embed import embed_items, items_of
from repair_ray.stages.graph import Progress
from repair_ray.stages.products import ROUND, result_place
from repair_ray.training.trained import spec_of


@dataclass(frozen=True)
class Expert:
    """A retriever that proposes candidates; `weights` identifies its weights, wherever they lie."""

    name: str
    spec: RetrieverSpec
    weights: str | None
    teacher: bool = False

    @property
    def product(self) -> str:
        """Its embeddings of the gallery and of the queries."""
        return f"{EXPERTS}/{self.name}"


def experts_of(chosen: Sequence[ExpertConfig]) -> list[Expert]:
    """The experts that a config names; nothing is built.

    Raises:
        RunError: no run there, not trained yet, or a model without weights. RetrieverError: an unknown model or tag,
            or no file of weights.
    """
    return [_expert(expert) for expert in chosen]


def _expert(expert: ExpertConfig) -> Expert:
    if expert.run is not None:
        tree = read_json(Path(expert.run) / "config.json")
        if tree is None:
            raise RunError(f"multimatch.experts: {expert.name} is of a run, and there is none at {expert.run}")
        config = parse_config(tree, source=f"{expert.run}/config.json")
        run = Run(expert.run)
        spec = spec_of(run, config, expert.which, ROUND if expert.which == "base" else result_place(run))
    else:
        assert expert.model is not None
        _check(expert.name, expert.model, expert.pretrained)
        spec = named_spec(expert.model, expert.pretrained, expert.precision)
    return Expert(expert.name, spec, weights_identity(spec.weights), expert.teacher)


def _check(name: str, model: str, weights: str | None) -> None:
    if sees_texts_only(model):
        raise RunError(f"multimatch.experts: {name} is {model}, which sees texts only: it cannot propose pictures")
    # Only here, as open_clip takes seconds to import.
    from repair_ray.engines.encoder import check_tag, resolve_model

    resolve_model(model)
    if weights is None:
        if not has_own_weights(model):
            raise RunError(f"multimatch.experts: {name} has no weights: set its pretrained, a tag or a checkpoint file")
    elif not is_file(weights):
        check_tag(model, weights)
    elif not Path(weights).is_file():
        raise RetrieverError(f"multimatch.experts: {name}: no checkpoint at {weights}")


def embed_pictures(run: Run, config: Config, product: str, expert: Expert, split: str, progress: Progress) -> None:
    """An `embeddings` table of all usable pictures of a split, by one expert."""
    embed_items(
        run,
        config,
        product,
        expert.spec,
        {"split": split},
        (IMAGES,),
        lambda: items_of(run, tables.IMAGE, (split,)),
        weights=expert.weights,
        progress=progress,
    )


def embed_gallery(run: Run, config: Config, expert: Expert, split: str, progress: Progress) -> None:
    """The expert's `embeddings` table of the gallery's pictures and of the queries (as captions of the split)."""
    embed_items(
        run,
        config,
        expert.product,
        expert.spec,
        {},
        (GALLERY, QUERIES),
        lambda: pa.concat_tables([_pictures(run, split), _queries(run, split)]),
        weights=expert.weights,
        progress=progress,
    )


def _pictures(run: Run, split: str) -> pa.Table:
    items = items_of(run, tables.IMAGE, (split,))
    return items.filter(pc.is_in(items["item_id"], usable(run.read(GALLERY))["image_id"].combine_chunks()))


def _queries(run: Run, split: str) -> pa.Table:
    rows = usable(run.read(QUERIES)).to_pylist()
    return tables.to_table(
        [{"item_id": row["query_id"], "kind": tables.CAPTION, "split": split, "text": row["text"]} for row in rows],
        tables.ITEMS,
    )
