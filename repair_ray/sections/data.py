"""Where pairs come from."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from repair_ray.sections.base import PositiveInt, Section, Seed
from repair_ray.sections.pools import PoolConfig

Format = Literal[
    "img2dataset",
    "clip_retrieval",
    "webdataset",
    "parquet",
    "arrow",
    "karpathy",
    "coco",
    "image_folder",
    "token",
    "json",
    "csv",
]
# Pillow takes a picture of more pixels for a decompression bomb.
MAX_PIXELS = 178_956_970


class WorldConfig(Section):
    """The demo's own data set: how many scenes a split holds."""

    train: PositiveInt = 1500
    validation: PositiveInt = 400
    test: PositiveInt = 1000
    distractors: int = Field(3, ge=0, description="siblings of a scene that differ from it in one detail")
    seed: Seed = 0


class DataConfig(Section):
    """Where pairs come from. Either one path a split, or one `path` whose rows name their split."""

    path: str | None = Field(None, description="file, folder or glob that holds every split")
    train: str | None = None
    validation: str | None = None
    test: str | None = None
    world: WorldConfig | None = Field(None, description="generate the demo's scenes instead of reading files")
    format: Format | None = Field(None, description="detected from the content when unset")
    image_root: str | None = Field(None, description="folder that relative image paths start from")
    image_column: str | None = None
    caption_column: str | None = None
    group_column: str | None = Field(None, description="rows with the same value show the same thing")
    split_column: str | None = None
    id_column: str | None = None
    images: Literal["in_place", "shards"] = Field("in_place", description="bytes inside tables always go to shards")
    shard_mb: PositiveInt = 256
    background: tuple[int, int, int] = Field((255, 255, 255), description="RGB under transparent pixels")
    max_pixels: int = Field(64_000_000, ge=1, le=MAX_PIXELS, description="a larger picture is a row with a reason")
    max_image_mb: PositiveInt = 64
    limit: PositiveInt | None = Field(None, description="read at most this many rows of each split")
    overlap: Literal["refuse", "drop", "allow"] = Field(
        "refuse", description="pictures to train on that are in an evaluated split too: stop, leave them out, or train"
    )
    near_bits: int | None = Field(
        4, ge=0, le=7, description="near duplicates: perceptual hashes that differ in so many of 64 bits at most"
    )
    near_same: bool = Field(False, description="near duplicates count as the same picture, in groups and in overlap")
    near_cosine: float | None = Field(
        None, gt=0.0, le=1.0, description="list pictures to train on that are so near to an evaluated one, by embedding"
    )
    pool: PoolConfig | None = Field(None, description="actors that open the pictures; unset: as `pool`, without GPUs")

    @model_validator(mode="after")
    def _one_source(self) -> DataConfig:
        named = [self.train, self.validation, self.test]
        if self.world is not None and (self.path or any(named)):
            raise ValueError("set either data.world or data paths, not both")
        if self.world is None and not self.path and not self.train:
            raise ValueError("nothing to read: set data.path, or data.train and data.test, or data.world")
        if self.path and any(named):
            raise ValueError("set either data.path or one path a split (data.train, ...), not both")
        if self.near_same and self.near_bits is None:
            raise ValueError("data.near_same needs near duplicates: set data.near_bits, such as 4")
        return self
