"""Stages of the engine whose models only take the time of one, as a GPU would: all that is around them is real."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.clocked import Clocked
from repair_ray.config import DataConfig, LanguageConfig, SelectionConfig
from repair_ray.data.access import image_store
from repair_ray.stages.candidates import MakeCandidates
from repair_ray.stages.embed import EmbedItems
from repair_ray.stages.questions import RowLanguage
from repair_ray.stages.select import SelectCandidate

DATA = DataConfig(train="none", test="none")


class TimedEncoder:
    """Takes `seconds` for a batch of anything, and answers with unit vectors `[N, width]` float32, always the same."""

    def __init__(self, seconds: float, width: int = 512) -> None:
        self.seconds, self.width = seconds, width
        self.preprocess = self

    def encode_texts(self, texts: list[str]) -> np.ndarray:
        return self._made(len(texts))

    def encode_images(self, images: list[Image.Image]) -> np.ndarray:
        return self._made(len(images))

    def truncated(self, text: str) -> bool:
        return False

    def sees_change(self, source: str, edited: str) -> bool:
        return True

    def _made(self, rows: int) -> np.ndarray:
        if rows:
            time.sleep(self.seconds)
        return np.full((rows, self.width), self.width**-0.5, np.float32)


class TimedEditor:
    """Takes `seconds` for an edit, and answers with noise."""

    name = "timed"

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(noise).save(buffer, "JPEG")
        self._made = buffer.getvalue()

    def edit(self, image: bytes, instruction: str, seed: int) -> bytes:
        time.sleep(self.seconds)
        return self._made


class _Embed(EmbedItems):
    def setup(self, folder: str, seconds: float) -> None:  # type: ignore[override]
        self._store = image_store(folder, DATA)
        self._encoder: Any = TimedEncoder(seconds)


class _Make(MakeCandidates):
    def setup(self, folder: str, seconds: float, candidates: int) -> None:  # type: ignore[override]
        self._store = image_store(folder, DATA)
        self._language = RowLanguage(LanguageConfig())
        self._editor = TimedEditor(seconds)
        self._candidates, self._seed = candidates, 0
        self._folder, self._product = folder, Path(folder).name


class _Select(SelectCandidate):
    def setup(self, folder: str, seconds: float, width: int) -> None:  # type: ignore[override]
        self._store = image_store(folder, DATA)
        self._encoder: Any = TimedEncoder(seconds, width)
        self._selection, self._seed = SelectionConfig(min_gain=-2.0, min_scaffold=-1.0), 0


class TimedEmbed(Clocked, _Embed):
    """`EmbedItems` with an encoder that takes `seconds` a batch."""


class TimedMake(Clocked, _Make):
    """`MakeCandidates` with an editor that takes `seconds` an edit."""


class TimedSelect(Clocked, _Select):
    """`SelectCandidate` with a retriever that takes `seconds` a batch, and takes every edit."""
