"""Training on clip features, in one process: InfoNCE over clips and captions, and SAN's fine-grained term."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from repair_ray.data.clips import Clip
from repair_ray.data.text import text_key
from repair_ray.engines.clip_tower import ClipRetriever
from repair_ray.evaluation.retrieval import retrieval_metrics
from repair_ray.sections.clips import ClipTrainingConfig
from repair_ray.training.objectives import FineGrained, InfoNCE, clamp_logit_scale_
from repair_ray.training.parameters import parameter_groups
from repair_ray.training.trainer import learning_rate

Pair = tuple[int, int]  # places of a clip, and of one of its captions
GRAD_CLIP = 1.0
Tell = Callable[[int, int], None]


@dataclass(frozen=True)
class FineTerm:
    """The fine-grained term: negative captions by clip and caption, how many a step draws, and its weight."""

    negatives: Mapping[Pair, Sequence[str]]
    drawn: int
    weight: float


def train_clips(
    retriever: ClipRetriever,
    clips: Sequence[Clip],
    settings: ClipTrainingConfig,
    *,
    fine: FineTerm | None = None,
    validation: Sequence[Clip] = (),
    seed: int = 0,
    tell: Tell = lambda done, total: None,
) -> dict[str, Any]:
    """Train in place; the weights with the best mean R@1 on `validation` win, the last where there is none.

    A step draws `batch_size` clips without replacement from a shuffled epoch, one caption of each at random, and with
    `fine` so many of the caption's negatives. On a CPU the same arguments give the same weights.

    Returns:
        `history`: step, loss terms and validation figure; `best_step`; `encoded`: clips and texts encoded.
    """
    device = "cuda" if settings.use_gpu else "cpu"
    retriever.to(device).train()
    groups = parameter_groups(retriever, settings.weight_decay, settings.lr)
    optimizer = torch.optim.AdamW(groups, lr=settings.lr, betas=(0.9, 0.98))
    draws = np.random.default_rng(seed)
    batches = _batches(len(clips), settings.batch_size, draws)
    objective = _Objective(retriever, clips, fine)
    history: list[dict[str, Any]] = []
    best: tuple[float, int, dict[str, Tensor]] | None = None
    for step in range(settings.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, settings)
        losses = objective(next(batches), draws)
        optimizer.zero_grad(set_to_none=True)
        torch.stack(list(losses.values())).sum().backward()
        nn.utils.clip_grad_norm_(retriever.parameters(), GRAD_CLIP)
        optimizer.step()
        clamp_logit_scale_(retriever.logit_scale)
        last = step + 1 == settings.steps
        if last or (step + 1) % settings.validate_every == 0:
            record: dict[str, Any] = {"step": step + 1, **{name: float(loss.detach()) for name, loss in losses.items()}}
            if validation:
                record["validation"] = mean_r1(retriever, validation)
                if best is None or record["validation"] > best[0]:
                    state = {name: value.detach().clone() for name, value in retriever.state_dict().items()}
                    best = record["validation"], step + 1, state
            history.append(record)
            tell(step + 1, settings.steps)
    if best is not None:
        retriever.load_state_dict(best[2])
    retriever.cpu().eval()
    return {
        "history": history,
        "best_step": settings.steps if best is None else best[1],
        "encoded": objective.encoded,
    }


class _Objective:
    """The loss terms of a batch."""

    def __init__(self, retriever: ClipRetriever, clips: Sequence[Clip], fine: FineTerm | None) -> None:
        self._retriever, self._clips, self._fine = retriever, clips, fine
        self._keys = [{text_key(text) for text in clip.captions} for clip in clips]
        self._infonce, self._fine_grained = InfoNCE(), FineGrained("own")
        self.encoded = 0

    def __call__(self, chosen: np.ndarray, draws: np.random.Generator) -> dict[str, Tensor]:
        pairs = [(int(clip), int(draws.integers(len(self._clips[clip].captions)))) for clip in chosen]
        texts = [self._clips[clip].captions[caption] for clip, caption in pairs]
        negatives = [self._drawn(pair, draws) for pair in pairs]
        written = list(dict.fromkeys([*texts, *(text for found in negatives for text in found)]))
        place = {text: n for n, text in enumerate(written)}
        features = self._retriever.text(written)
        clips, _, _ = self._retriever.clips([self._clips[clip].features for clip, _ in pairs])
        own = features[[place[text] for text in texts]]
        scale = self._retriever.logit_scale.exp()
        items = np.arange(len(pairs))
        known = _known(self._keys, chosen, texts)
        self.encoded += len(pairs) + len(written)
        losses = {"infonce": self._infonce(clips, own, scale, known=known, image_items=items, text_items=items)}
        if self._fine is not None:
            width = max(1, max(map(len, negatives)))
            slots = np.zeros((len(pairs), width), np.int64)
            there = np.zeros((len(pairs), width), bool)
            for row, found in enumerate(negatives):
                slots[row, : len(found)] = [place[text] for text in found]
                there[row, : len(found)] = True
            losses["fine_grained"] = self._fine.weight * self._fine_grained(
                clips,
                own,
                features[slots],
                torch.from_numpy(there).to(clips.device),
                scale,
                # Negatives were held against all captions of their clip when they were made.
                known=lambda images, texts: np.zeros((len(images), len(texts)), bool),
                image_items=items,
                text_items=items,
                negative_items=slots,
            )
        return losses

    def _drawn(self, pair: Pair, draws: np.random.Generator) -> list[str]:
        found = [] if self._fine is None else self._fine.negatives.get(pair, [])
        if self._fine is None or len(found) <= self._fine.drawn:
            return list(found)
        return [found[n] for n in draws.choice(len(found), self._fine.drawn, replace=False)]


def _known(
    keys: Sequence[set[str]], chosen: np.ndarray, texts: Sequence[str]
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Which texts of a batch are captions of which of its clips."""
    said = [text_key(text) for text in texts]
    match = np.array([[key in keys[clip] for key in said] for clip in chosen], bool)
    return lambda images, captions: match[np.ix_(images, captions)]


def _batches(count: int, size: int, draws: np.random.Generator) -> Any:
    """Places of clips, `size` at a time, from one shuffled epoch after another; none twice in a batch."""
    while True:
        order = draws.permutation(count)
        whole = max(1, count // size)
        yield from np.array_split(order[: whole * size], whole)


def clip_metrics(
    retriever: ClipRetriever, clips: Sequence[Clip], *, bootstrap: int = 1000, seed: int = 0
) -> dict[str, dict[str, Any]]:
    """Retrieval among all clips and captions: `i2t` is a clip that finds its captions, `t2i` the other way.

    A caption is right of each clip that has its text.
    """
    texts = [(n, text_key(text), text) for n, clip in enumerate(clips) for text in clip.captions]
    owners: dict[str, set[int]] = {}
    for clip, key, _ in texts:
        owners.setdefault(key, set()).add(clip)
    of_caption = [np.array(sorted(owners[key])) for _, key, _ in texts]
    of_clip: list[list[int]] = [[] for _ in clips]
    for caption, found in enumerate(of_caption):
        for clip in found.tolist():
            of_clip[clip].append(caption)
    return retrieval_metrics(
        retriever.encode_clips([clip.features for clip in clips]),
        retriever.encode_texts([text for _, _, text in texts]),
        [np.array(found) for found in of_clip],
        of_caption,
        bootstrap=bootstrap,
        seed=seed,
    )


def mean_r1(retriever: ClipRetriever, clips: Sequence[Clip]) -> float:
    """R@1 in percent, the mean of both directions."""
    found = clip_metrics(retriever, clips, bootstrap=2)
    return (found["i2t"]["r@1"] + found["t2i"]["r@1"]) / 2
