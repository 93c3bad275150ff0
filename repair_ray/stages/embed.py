"""Embed: every usable picture and caption of some splits, with one retriever."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.config import Config, DataConfig, FaultConfig
from repair_ray.data.access import image_store
from repair_ray.data.images import ImageProblem
from repair_ray.engines.retriever import RetrieverSpec, sees_texts_only
from repair_ray.run import CAPTIONS, IMAGES, Recipe, Run
from repair_ray.stages.graph import Progress, Step, quiet, run_graph
from repair_ray.stages.pools import Pool, main_pool
from repair_ray.stages.rows import Row, RowStage
from repair_ray.stages.sink import ByPiece, check_errors

if TYPE_CHECKING:
    from repair_ray.engines.encoder import Encoder
    from repair_ray.engines.sentences import SentenceEncoder


class EmbedItems(RowStage):
    """Fetches, decodes and encodes a batch; a picture that cannot be read becomes a status row."""

    def setup(self, folder: str, data: dict[str, Any], spec: dict[str, Any], device: str, batch_size: int) -> None:
        self._store = image_store(folder, DataConfig.model_validate(data))
        self._encoder = _encoder(RetrieverSpec(**spec), device, batch_size)

    def process(self, rows: list[Row]) -> list[Row]:
        readable, bad, pictures = [], [], []
        for row in (row for row in rows if row["kind"] == tables.IMAGE):
            try:
                pictures.append(self._store.rgb(row["uri"], row["offset"], row["length"]))
                readable.append(row)
            except ImageProblem as problem:
                bad.append(self.failed(row, str(problem.reason)))
        texts = [row for row in rows if row["kind"] == tables.CAPTION]
        made = _with_vectors(readable, self._encoder.encode_images(pictures))
        made += _with_vectors(texts, self._encoder.encode_texts([row["text"] for row in texts]))
        for row in made:
            row["truncated"] = row["kind"] == tables.CAPTION and self._encoder.truncated(row["text"])
        return bad + made


def _encoder(spec: RetrieverSpec, device: str, batch_size: int) -> Encoder | SentenceEncoder:
    # Imported here: the driver, which only names the stage's class, needs no model library.
    if sees_texts_only(spec.model):
        from repair_ray.engines.sentences import SentenceEncoder

        return SentenceEncoder(spec, device, batch_size)
    from repair_ray.engines.encoder import Encoder

    return Encoder(spec, device, batch_size)


def _with_vectors(rows: list[Row], vectors: np.ndarray) -> list[Row]:
    return [
        {**row, "vector": vector, "status": tables.OK}
        if np.isfinite(vector).all()
        else {**row, "status": tables.ERROR, "reason": "the retriever's features are not finite"}
        for row, vector in zip(rows, vectors, strict=True)
    ]


def embed(
    run: Run,
    config: Config,
    product: str,
    spec: RetrieverSpec,
    splits: tuple[str, ...],
    parents: tuple[str, ...],
    *,
    weights: str | None = None,
    pool: Pool | None = None,
    progress: Progress = quiet,
) -> None:
    """Make an `embeddings` table of all usable pictures and captions of some splits.

    The retriever's weights are known by `parents`, the products that they come from, or, where the config names them,
    by `weights`. `pool` is that of the retriever where it is not the run's own.
    """
    kinds = (tables.CAPTION,) if sees_texts_only(spec.model) else (tables.IMAGE, tables.CAPTION)
    embed_items(
        run,
        config,
        product,
        spec,
        {"splits": list(splits)},
        (IMAGES, CAPTIONS, *parents),
        lambda: pa.concat_tables([items_of(run, kind, splits) for kind in kinds]),
        weights=weights,
        pool=pool,
        progress=progress,
    )


def embed_items(
    run: Run,
    config: Config,
    product: str,
    spec: RetrieverSpec,
    chosen: dict[str, Any],
    parents: tuple[str, ...],
    items: Callable[[], pa.Table],
    *,
    weights: str | None = None,
    pool: Pool | None = None,
    progress: Progress = quiet,
) -> None:
    """Make an `embeddings` table of any `ITEMS`.

    Args:
        chosen: settings that say which items these are, beside the products (`parents`) that they come from.
        weights: identity of the retriever's weights, where no parent is what they come from.
    """
    settings = {"retriever": {"model": spec.model, "precision": spec.precision, "weights": weights}, **chosen}
    pool = pool or main_pool(config)
    arguments = {
        "folder": str(run.folder),
        "data": config.data.model_dump(mode="json"),
        "spec": asdict(spec),
        "device": pool.device,
        "batch_size": config.retriever.batch_size,
    }
    run_graph(
        run,
        product,
        Recipe(settings, parents),
        tables.EMBEDDINGS,
        [Step(EmbedItems, tables.EMBEDDINGS.schema, arguments, *pool)],
        items,
        faults=config.faults,
        finish=ByPiece(("kind", "status", "reason"), lambda rows: _each_kind(rows, config.faults, product)),
        cluster=config.cluster,
        facts={"model": spec.model, "weights": spec.weights},
        progress=progress,
    )


def _each_kind(table: pa.Table, faults: FaultConfig, product: str) -> Callable[[pa.Table], pa.Table]:
    # Captions outnumber pictures, so that all pictures together may be less than the limit over both.
    for kind in (tables.IMAGE, tables.CAPTION):
        rows = table.filter(pc.equal(table["kind"], kind))
        if len(rows):
            check_errors(rows, faults, product, f"{kind}s")
    return lambda piece: piece


def items_of(run: Run, kind: str, splits: tuple[str, ...]) -> pa.Table:
    """`ITEMS`: the usable pictures or captions of some splits."""
    product, identity = (IMAGES, "image_id") if kind == tables.IMAGE else (CAPTIONS, "caption_id")
    table = run.read(product)
    usable = table.filter(pc.and_(pc.equal(table["status"], tables.OK), pc.is_in(table["split"], pa.array(splits))))
    known = {**dict(zip(usable.column_names, usable.columns, strict=True)), "item_id": usable[identity]}
    known["kind"] = pa.repeat(pa.scalar(kind), len(usable))
    columns = [known.get(field.name, pa.nulls(len(usable), field.type)) for field in tables.ITEMS]
    return pa.table(columns, schema=tables.ITEMS)
