"""Hard-negative mixing: terms whose positives or negatives are mixtures of features (HNCSE; methods, section 4).

The paper's Eq. 2 has undefined weights, and negative ones where the negative is nearer than the positive; what is here
is the well-defined version (ours). Everything computes in float32, also under autocast. Which items are mixed, and with
which weights, is decided without gradient (ours); the features that are mixed have theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from repair_ray.training.gather import gather_features, gather_items

Known = Callable[[np.ndarray, np.ndarray], np.ndarray]
Mix = Literal["uniform", "similarity"]
EPS = 1e-6


def mix_positives(
    queries: Tensor,
    positives: Tensor,
    allowed: Tensor,
    margin: float = 0.1,
    mix: float | None = None,
    eps: float = EPS,
) -> Tensor:
    """Positives, some of them mixed with their query's hardest negative (methods, section 4, PM).

    With `d1` the cosine of a query and its positive, and `d2` that of the query and the nearest negative: where
    `(d1 - d2) / |d1| > margin`, the positive stays as it is; else it becomes `w * positive + (1 - w) * negative` at
    unit length, with `w = d1 / (d1 + d2)`, both at least `eps`.

    Args:
        queries, positives: unit features `[B, D]`, any float dtype; row i of one belongs to row i of the other.
        allowed: bool `[B, B]`, True where positive j may be a negative of query i; the diagonal counts nothing.
        mix: a fixed `w`, 0 to 1, in place of the one by similarities.

    Returns:
        float32 `[B, D]` of unit length. A row without any negative is unchanged, and so is one whose mixture would be
        nothing: two opposite features in equal parts.

    Raises:
        ValueError: a `mix` that is no weight.
    """
    if mix is not None and not 0.0 <= mix <= 1.0:
        raise ValueError(f"mix={mix} must be a weight of the positive from 0 to 1, or None for the similarities' own")
    with _float32(queries):
        queries, positives = queries.float(), positives.float()
        if not len(queries):
            return positives
        with torch.no_grad():
            scores = queries @ positives.T
            allowed = allowed & ~_diagonal(allowed)
            near = scores.diagonal()
            far, hardest = scores.masked_fill(~allowed, -torch.inf).max(1)
            # As a product, so that a query at a right angle to its positive divides by nothing.
            mixed = allowed.any(1) & ~(near - far > margin * near.abs())
            weights = _share(near, far, eps) if mix is None else torch.full_like(near, mix)
        return _mixture(positives, positives[hardest], weights, mixed)


def mix_negatives(
    queries: Tensor,
    keys: Tensor,
    allowed: Tensor,
    k: int,
    pairs: int,
    mix: Mix = "uniform",
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Further negatives of each query: mixtures of two of its `k` hardest ones (methods, section 4, HNM).

    A pair is drawn among the hardest with equal chances, without repetition within the pair; it becomes
    `a * one + (1 - a) * other` at unit length. A query with fewer than `k` negatives takes those that it has; of a
    single one the mixture is that negative.

    Args:
        queries, keys: unit features `[B, D]` and `[N, D]`, any float dtype.
        allowed: bool `[B, N]`, True where key j may be a negative of query i.
        pairs: mixtures a query.
        mix: `uniform` draws `a` from U(0, 1); `similarity` takes the share of the first one's cosine with the query
            (ours: the paper's weight is a function of similarity that it does not give).
        generator: what the draws come from; they depend on it and on `B` and `pairs` alone.

    Returns:
        float32 `[B, pairs, D]` of unit length, and bool `[B]`: False for a query that has no negative, whose mixtures
        mean nothing.

    Raises:
        ValueError: `k` is not below the number of keys, the batch.
    """
    if k >= len(keys):
        raise ValueError(
            f"hard_negative_mixing.k={k} is not below the batch of {len(keys)}, in which a query has at most "
            f"{max(0, len(keys) - 1)} negatives: lower hard_negative_mixing.k, or raise training.batch_size"
        )
    with _float32(queries):
        queries, keys = queries.float(), keys.float()
        with torch.no_grad():
            scores = (queries @ keys.T).masked_fill(~allowed, -torch.inf)
            # A stable sort, where topk leaves the order of ties open.
            hardest = scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
            count = allowed.sum(1).clamp(max=k)[:, None]
            draws = torch.rand(3, len(queries), pairs, generator=generator, device=_device(generator))
            draws = draws.to(queries.device)
            one = (draws[0] * count).long().minimum(count - 1).clamp(min=0)
            other = (draws[1] * (count - 1)).long().minimum(count - 2).clamp(min=0)
            other = (other + (other >= one)).minimum(count - 1).clamp(min=0)
            one, other = hardest.gather(1, one), hardest.gather(1, other)
            weights = draws[2] if mix == "uniform" else _share(scores.gather(1, one), scores.gather(1, other), EPS)
        return _mixture(keys[one], keys[other], weights, torch.ones_like(one, dtype=torch.bool)), count[:, 0] > 0


def contrast(
    queries: Tensor,
    keys: Tensor,
    scale: Tensor,
    allowed: Tensor,
    positives: Tensor | None = None,
    negatives: Tensor | None = None,
    with_negatives: Tensor | None = None,
) -> Tensor:
    """InfoNCE in one direction: each query among the keys, of which key i is its own.

    Args:
        queries, keys: unit features `[B, D]`.
        scale: what the cosines are multiplied with, a scalar.
        allowed: bool `[B, B]`, True where key j may be a negative of query i; the diagonal counts nothing.
        positives: `[B, D]` that take the place of each query's own key; as negatives of other queries the keys stay as
            they are (ours: a mixture is no item, and it holds part of the positive of the query it was mixed with).
        negatives: `[B, M, D]`, further negatives of each query, where bool `[B]` `with_negatives` says that it has any.

    Returns:
        The mean over queries, a float32 scalar; 0 for an empty batch.
    """
    with _float32(queries):
        queries, keys = queries.float(), keys.float()
        if not len(queries):
            return queries.sum() + keys.sum()
        own = _diagonal(allowed)
        logits = queries @ keys.T
        if positives is not None:
            logits = torch.where(own, (queries * positives).sum(1, keepdim=True), logits)
        # Masked last: the scale's gradient knows no minus infinity times nothing.
        logits = (scale.float() * logits).masked_fill(~allowed & ~own, -torch.inf)
        if negatives is not None:
            further = scale.float() * torch.einsum("bd,bmd->bm", queries, negatives)
            if with_negatives is not None:
                further = further.masked_fill(~with_negatives[:, None], -torch.inf)
            logits = torch.cat([logits, further], 1)
        return F.cross_entropy(logits, torch.arange(len(queries), device=logits.device))


class _Term(nn.Module):
    """A term over the pairs of all workers, gathered with gradient as `InfoNCE` is; the same loss on every worker."""

    def __init__(self, both_ways: bool) -> None:
        super().__init__()
        self.both_ways = both_ways

    def _ways(
        self,
        queries: Tensor,
        positives: Tensor,
        known: Known,
        query_items: np.ndarray,
        positive_items: np.ndarray,
    ) -> Sequence[tuple[Tensor, Tensor, Tensor]]:
        """Queries, keys and allowed negatives of each direction, over all workers."""
        queries, positives = gather_features(queries.float()), gather_features(positives.float())
        device = queries.device
        match = known(gather_items(query_items, device), gather_items(positive_items, device))
        allowed = ~torch.from_numpy(match).to(device)
        allowed = allowed & ~_diagonal(allowed)
        there = (queries, positives, allowed)
        return (there, (positives, queries, allowed.T)) if self.both_ways else (there,)


class SimCSE(_Term):
    """InfoNCE of two passes over the same texts at a fixed temperature (SimCSE, section 3; formulas, 2.5)."""

    def __init__(self, both_ways: bool = False) -> None:
        super().__init__(both_ways)

    def forward(
        self,
        queries: Tensor,
        positives: Tensor,
        scale: Tensor,
        *,
        known: Known,
        query_items: np.ndarray,
        positive_items: np.ndarray,
    ) -> Tensor:
        """See `PositiveMixing`."""
        ways = self._ways(queries, positives, known, query_items, positive_items)
        return torch.stack([contrast(q, k, scale, allowed) for q, k, allowed in ways]).mean()


class PositiveMixing(_Term):
    """PM: InfoNCE in which a positive that is hardly nearer than the hardest negative is mixed with it."""

    def __init__(self, margin: float = 0.1, mix: float | None = None, both_ways: bool = True) -> None:
        super().__init__(both_ways)
        self.margin = margin
        self.mix = mix

    def forward(
        self,
        queries: Tensor,
        positives: Tensor,
        scale: Tensor,
        *,
        known: Known,
        query_items: np.ndarray,
        positive_items: np.ndarray,
    ) -> Tensor:
        """Loss of the global batch (the same on every worker).

        Args:
            queries, positives: this worker's unit features `[B, D]`: images and texts, or two passes over texts.
            scale: logit scale, or one over a fixed temperature; a scalar.
            known: tells which of query items `[N]` and positive items `[M]` are known positives, as bool `[N, M]`;
                they are never pushed, and never mixed in.
            query_items, positive_items: what the features are features of, int64 `[B]`.
        """
        ways = self._ways(queries, positives, known, query_items, positive_items)
        losses = [contrast(q, k, scale, a, positives=mix_positives(q, k, a, self.margin, self.mix)) for q, k, a in ways]
        return torch.stack(losses).mean()


class HardNegativeMixing(_Term):
    """HNM: InfoNCE with mixtures of each query's hardest negatives as further negatives."""

    def __init__(
        self, k: int = 10, pairs: int = 16, mix: Mix = "uniform", both_ways: bool = True, seed: int = 0
    ) -> None:
        super().__init__(both_ways)
        self.k, self.pairs, self.mix, self.seed = k, pairs, mix, seed

    def forward(
        self,
        queries: Tensor,
        positives: Tensor,
        scale: Tensor,
        *,
        known: Known,
        query_items: np.ndarray,
        positive_items: np.ndarray,
        step: int,
    ) -> Tensor:
        """See `PositiveMixing`. What is drawn depends on the seed and the `step` alone: every worker draws the same.

        Raises:
            ValueError: `k` is not below the global batch.
        """
        generator = torch.Generator().manual_seed(draw_seed(self.seed, step))
        losses = []
        for q, k, allowed in self._ways(queries, positives, known, query_items, positive_items):
            negatives, there = mix_negatives(q, k, allowed, self.k, self.pairs, self.mix, generator)
            losses.append(contrast(q, k, scale, allowed, negatives=negatives, with_negatives=there))
        return torch.stack(losses).mean()


def draw_seed(*parts: int) -> int:
    """One seed of 63 bits for several numbers, such as a seed and a step: near ones give unrelated draws."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _share(one: Tensor, other: Tensor, eps: float) -> Tensor:
    one, other = one.clamp(min=eps), other.clamp(min=eps)
    return one / (one + other)


def _mixture(one: Tensor, other: Tensor, weights: Tensor, mixed: Tensor) -> Tensor:
    """`weights * one + (1 - weights) * other` at unit length where `mixed`; `one` elsewhere, and where they cancel."""
    weights = weights[..., None]
    total = weights * one + (1 - weights) * other
    mixed = mixed & (total.detach().norm(dim=-1) > EPS)
    # What is not taken is `one` before it is normalised too: its gradient stays finite.
    total = torch.where(mixed[..., None], total, one)
    return torch.where(mixed[..., None], F.normalize(total, dim=-1), one)


def _diagonal(square: Tensor) -> Tensor:
    return torch.eye(len(square), dtype=torch.bool, device=square.device)


def _float32(features: Tensor) -> torch.autocast:
    """Without autocast, which would take a float32 product back to bfloat16."""
    return torch.autocast(features.device.type, enabled=False)


def _device(generator: torch.Generator | None) -> torch.device:
    return torch.device("cpu") if generator is None else generator.device
