"""The objective of a training run: the terms that a config names, over what a step has encoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from repair_ray.config import ObjectiveConfig, PluggedTermConfig
from repair_ray.plugins import TERMS, load, read_settings
from repair_ray.run import RunError
from repair_ray.training.batches import Batch
from repair_ray.training.items import TeacherFeatures
from repair_ray.training.objectives import (
    Distill,
    FineGrained,
    HardNegativeMixing,
    InfoNCE,
    IntraModal,
    LocalGrid,
    PositiveMixing,
    SoftLabels,
)
from repair_ray.training.pairs import ABSENT, PairSet


@dataclass
class Encoded:
    """What a step has encoded on this worker, each item once.

    `images [N, D]` and `texts [M, D]`: unit features, float32, of the batch's items. `scale`: the logit scale.
    """

    step: int
    batch: Batch
    images: Tensor
    texts: Tensor
    scale: Tensor

    def pairs(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """Features of the pairs at places `rows [B, 2]`: images `[B, D]` and texts `[B, D]`."""
        return self.images[rows[:, 0]], self.texts[rows[:, 1]]

    def items(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The image and caption items of the pairs at places `rows [B, 2]`."""
        return self.batch.images[rows[:, 0]], self.batch.captions[rows[:, 1]]


class Term(Protocol):
    """A term of the objective: what a step has encoded in, a scalar out, to be minimised.

    One of another package is made as `Term(settings, known=known, seed=seed)`, once a worker: `known` is `Known`, which
    tells known positives, and `seed` the run's. Over several workers it must give the loss of the global batch on each
    of them: `training.gather` gathers features with gradient. Only the retriever's weights are trained: parameters of
    its own stay as they are.
    """

    def __call__(self, encoded: Encoded) -> Tensor:
        """The loss of a step: a scalar with a gradient, float32; draws are a function of `encoded.step` alone."""
        ...


class Objective(nn.Module):
    """A weighted sum of terms, chosen by the config; each is computed over the items of all workers.

    Raises:
        RunError: a term needs what the training set lacks: a teacher's features, or negative captions.
    """

    def __init__(
        self, config: ObjectiveConfig, pairs: PairSet, teacher: TeacherFeatures | None = None, seed: int = 0
    ) -> None:
        super().__init__()
        self.config, self.known, self.seed = config, pairs.known, seed
        self._teacher = teacher
        self._check(pairs)
        self._infonce = InfoNCE()
        self._local = LocalGrid(push_only=config.push_only)
        self.terms = dict(self._made())

    def forward(self, encoded: Encoded) -> dict[str, Tensor]:
        """The terms by name, each times its weight; their sum is what is minimised."""
        return {name: weight * term(encoded) for name, (weight, term) in self.terms.items()}

    def _made(self) -> list[tuple[str, tuple[float, Term]]]:
        config = self.config
        made: list[tuple[str, float, Term]] = [("infonce", config.infonce_weight, self._global)]
        if config.placement in ("local", "both"):
            made.append(("local_grid", config.local_weight, self._grids))
        if soft := config.soft_labels:
            made.append(
                ("soft_labels", soft.weight, self._soft(SoftLabels(soft.temperature, soft.teacher_temperature)))
            )
        if intra := config.intra_modal:
            for kind in intra.kinds:
                structure = IntraModal(intra.temperature, intra.teacher_temperature)
                made.append((f"intra_modal_{kind}", intra.weight / len(intra.kinds), self._intra(structure, kind)))
        if distill := config.distill:
            made.append(("distill", distill.weight, self._distill(Distill(distill.teacher_scale))))
        if fine := config.fine_grained:
            made.append(("fine_grained", fine.weight, self._fine(FineGrained(fine.candidates))))
        if positive := config.positive_mixing:
            made.append(
                ("positive_mixing", positive.weight, self._mixing(PositiveMixing(positive.margin, positive.mix)))
            )
        if hard := config.hard_negative_mixing:
            mixing = HardNegativeMixing(hard.k, hard.pairs, hard.mix, seed=self.seed)
            made.append(("hard_negative_mixing", hard.weight, self._mixing(mixing)))
        made += [(name, plugged.weight, self._plugged(name, plugged)) for name, plugged in config.plugged.items()]
        return [(name, (weight, term)) for name, weight, term in made if weight > 0]

    def _plugged(self, name: str, config: PluggedTermConfig) -> Term:
        """A term of another package, which has to give a scalar that weights can learn from."""
        term: Term = load(TERMS, name)(read_settings(TERMS, name, config.settings), known=self.known, seed=self.seed)

        def value(encoded: Encoded) -> Tensor:
            found = term(encoded)
            if not isinstance(found, Tensor) or found.ndim or not found.requires_grad:
                said = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
                raise RunError(f"objective.{name}: the term gives {said}, not a scalar tensor with a gradient")
            return found.float()

        return value

    def _check(self, pairs: PairSet) -> None:
        config, teacher = self.config, self._teacher
        if config.taught and teacher is None:
            raise RunError("objective: soft_labels, intra_modal and distill need a teacher; set teacher.retriever")
        cross = [name for name in ("soft_labels", "distill") if getattr(config, name)]
        if cross and teacher and (teacher.images is None or teacher.texts is None):
            lacking = "pictures" if teacher.images is None else "captions"
            raise RunError(f"objective.{cross[0]}: the teacher has no features of {lacking}; take a cross-modal one")
        for kind in config.intra_modal.kinds if config.intra_modal else ():
            if teacher and (teacher.images if kind == "image" else teacher.texts) is None:
                raise RunError(f"objective.intra_modal.kinds: the teacher has no features of the kind {kind}")
        if config.fine_grained and not pairs.contrasts:
            raise RunError("objective.fine_grained: no caption has a negative; its strategy wrote none")

    def _pairs(self, encoded: Encoded) -> np.ndarray:
        """The global batch: the anchors, and the corrected pairs where they are dispersed into it."""
        rows = encoded.batch.anchors
        if self.config.placement in ("dispersed", "both"):
            rows = np.concatenate([rows, encoded.batch.extra])
        return rows

    def _global(self, encoded: Encoded) -> Tensor:
        rows = self._pairs(encoded)
        image_items, text_items = encoded.items(rows)
        found: Tensor = self._infonce(
            *encoded.pairs(rows), encoded.scale, known=self.known, image_items=image_items, text_items=text_items
        )
        return found

    def _mixing(self, term: PositiveMixing | HardNegativeMixing) -> Term:
        def value(encoded: Encoded) -> Tensor:
            rows = self._pairs(encoded)
            query_items, positive_items = encoded.items(rows)
            # The draws are a function of the step, so that a resumed run makes the same ones.
            step = {"step": encoded.step} if isinstance(term, HardNegativeMixing) else {}
            found: Tensor = term(
                *encoded.pairs(rows),
                encoded.scale,
                known=self.known,
                query_items=query_items,
                positive_items=positive_items,
                **step,
            )
            return found

        return value

    def _grids(self, encoded: Encoded) -> Tensor:
        batch, device = encoded.batch, encoded.images.device
        slots_i, slots_t = batch.grid_images, batch.grid_captions
        known = (
            np.stack(
                [
                    self.known(_items(batch.images, i), _items(batch.captions, t))
                    for i, t in zip(slots_i, slots_t, strict=True)
                ]
            )
            if len(slots_i)
            else np.zeros((0, 3, 3), bool)
        )
        own = self.config.local_scale
        found: Tensor = self._local(
            encoded.images[np.maximum(slots_i, 0)],
            encoded.texts[np.maximum(slots_t, 0)],
            torch.from_numpy(slots_i != ABSENT).to(device),
            torch.from_numpy(slots_t != ABSENT).to(device),
            encoded.scale if own is None else torch.tensor(own, device=device),
            torch.from_numpy(known).to(device),
        )
        return found

    def _fine(self, term: nn.Module) -> Term:
        def value(encoded: Encoded) -> Tensor:
            batch = encoded.batch
            image_items, text_items = encoded.items(batch.fine)
            found: Tensor = term(
                *encoded.pairs(batch.fine),
                encoded.texts[np.maximum(batch.negatives, 0)],
                torch.from_numpy(batch.negatives != ABSENT).to(encoded.images.device),
                encoded.scale,
                known=self.known,
                image_items=image_items,
                text_items=text_items,
                negative_items=_items(batch.captions, batch.negatives),
            )
            return found

        return value

    def _soft(self, term: nn.Module) -> Term:
        def value(encoded: Encoded) -> Tensor:
            rows, images, texts = self._taught(encoded)
            found: Tensor = term(*encoded.pairs(rows), images, texts)
            return found

        return value

    def _distill(self, term: nn.Module) -> Term:
        def value(encoded: Encoded) -> Tensor:
            rows, images, texts = self._taught(encoded)
            found: Tensor = term(*encoded.pairs(rows), images, texts, encoded.scale)
            return found

        return value

    def _intra(self, term: nn.Module, kind: str) -> Term:
        def value(encoded: Encoded) -> Tensor:
            rows = encoded.batch.anchors
            place = 0 if kind == "image" else 1
            taught = self._features(kind, encoded.items(rows)[place], encoded.images.device)
            seen = _finite(taught)
            found: Tensor = term(encoded.pairs(rows[seen])[place], taught[seen])
            return found

        return value

    def _taught(self, encoded: Encoded) -> tuple[np.ndarray, Tensor, Tensor]:
        """The anchors whose picture and caption the teacher has seen, with its features of them."""
        rows = encoded.batch.anchors
        image_items, text_items = encoded.items(rows)
        images = self._features("image", image_items, encoded.images.device)
        texts = self._features("text", text_items, encoded.images.device)
        seen = _finite(images) & _finite(texts)
        return rows[seen], images[seen], texts[seen]

    def _features(self, kind: str, items: np.ndarray, device: torch.device) -> Tensor:
        assert self._teacher is not None  # `_check` has refused it
        features = self._teacher.images if kind == "image" else self._teacher.texts
        assert features is not None
        return torch.from_numpy(np.asarray(features[items], np.float32)).to(device)


def _finite(features: Tensor) -> np.ndarray:
    return np.asarray(torch.isfinite(features).all(1).cpu().numpy())


def _items(items: np.ndarray, slots: np.ndarray) -> np.ndarray:
    return np.where(slots == ABSENT, ABSENT, items[np.maximum(slots, 0)])
