"""Data in: readers' records become the `images` and `captions` tables; every picture is opened once.

Bytes that lie inside tables go to tar shards, files stay where they are (`data.images`). Opening, checking and hashing
the pictures is a Ray Data graph, since a picture can kill the process that decodes it.
"""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from repair_ray import tables
from repair_ray.config import Config, DataConfig
from repair_ray.data.access import image_store
from repair_ray.data.duplicates import perceptual_hash
from repair_ray.data.images import ImageProblem, pixel_hash
from repair_ray.run import CAPTIONS, IMAGES, Recipe, Run, RunError
from repair_ray.stages.duplicates import settle_duplicates
from repair_ray.stages.graph import Progress, Step, quiet, run_graph
from repair_ray.stages.pools import pool_of
from repair_ray.stages.rows import Row, RowStage
from repair_ray.stages.sources import gather


class CheckImages(RowStage):
    """Opens each picture: size and hashes, or the reason why it cannot be used."""

    def setup(self, folder: str, data: dict[str, Any]) -> None:
        self._store = image_store(folder, DataConfig.model_validate(data))

    def process(self, rows: list[Row]) -> list[Row]:
        return [self._check(row) for row in rows]

    def _check(self, row: Row) -> Row:
        try:
            image = self._store.rgb(row["uri"], row["offset"], row["length"])
        except ImageProblem as problem:
            return self.failed(row, str(problem.reason))
        hashes = {"pixel_hash": pixel_hash(image), "perceptual_hash": perceptual_hash(image)}
        return {**row, "width": image.width, "height": image.height, **hashes}


def ingest(
    run: Run,
    config: Config,
    data_settings: dict[str, Any],
    sources: dict[str, str],
    progress: Progress = quiet,
    needed: tuple[str, ...] | None = None,
) -> None:
    """Make the `images` and `captions` tables.

    Args:
        data_settings: the recipe's settings (the data section, and a digest of the files behind it).
        sources: path to read for each split.
        needed: splits that must have a row; None: those that a round of repair needs.

    Raises:
        DataError: a source is missing, empty, or of no known layout.
        RunError: no usable row, or pictures to train on that are evaluated on too.
    """
    # Not in the folder of a table, which people open as a whole.
    read = run.path(IMAGES).parent
    images_file, captions_file = read / "images-as-read.parquet", read / "captions-as-read.parquet"

    def gather_input() -> pa.Table:
        gather(run, config, sources, images_file, captions_file, needed)
        return pq.read_table(images_file)

    trained = config.trained_splits
    run_graph(
        run,
        IMAGES,
        Recipe({**data_settings, "splits": {"trained": list(trained)}}, version=2),
        tables.IMAGES,
        [
            Step(
                CheckImages,
                tables.IMAGES.schema,
                {"folder": str(run.folder), "data": config.data.model_dump(mode="json")},
                *pool_of(config, "data"),
            )
        ],
        gather_input,
        faults=config.faults,
        cluster=config.cluster,
        finish=lambda table: settle_duplicates(table, config.data, trained),
        progress=progress,
    )
    images_file.unlink(missing_ok=True)
    caption_recipe = Recipe({}, (IMAGES,))
    if not run.ready(CAPTIONS, caption_recipe):
        start = time.monotonic()
        table = _with_their_pictures(pq.read_table(captions_file), run.read(IMAGES))
        if not pc.any(pc.equal(table["status"], tables.OK)).as_py():
            raise RunError(f"no caption has a usable picture; see the reasons in {run.path(IMAGES)}")
        run.commit(CAPTIONS, caption_recipe, tables.CAPTIONS, table, time.monotonic() - start)


def _with_their_pictures(captions: pa.Table, images: pa.Table) -> pa.Table:
    """The captions with the groups and statuses that their pictures have come to."""
    place = pc.index_in(captions["image_id"], images["image_id"].combine_chunks())
    groups, statuses, reasons = (images[name].take(place) for name in ("group_id", "status", "reason"))
    told = pc.if_else(pc.equal(statuses, tables.OK), None, pc.binary_join_element_wise("its picture:", reasons, " "))
    for name, values in (("group_id", groups), ("status", statuses), ("reason", told)):
        column = captions.schema.get_field_index(name)
        captions = captions.set_column(column, captions.schema.field(column), values)
    return captions
