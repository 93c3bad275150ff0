"""Exact search: our `Searcher` on FAISS against a plain matrix product and top-k on the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import faiss
import torch
from torch import Tensor

from benchmarks.gpu_engines.meter import Meter, Row
from repair_ray.engines.searcher import Searcher

CHUNK = 256  # queries of one float64 product


@dataclass(frozen=True)
class Sizes:
    gallery: int
    width: int
    queries: int
    k: int
    repeats: int


FULL = Sizes(1_000_000, 512, 1024, 16, 10)
QUICK = Sizes(2_000, 32, 16, 5, 2)


def rows(meter: Meter) -> Iterator[Row]:
    """Queries a second and recall, on random unit vectors. Recall is against float64 scores of the same vectors."""
    sizes = QUICK if meter.quick else FULL
    gallery, queries = (
        _unit(count, sizes.width, meter.device, seed) for seed, count in enumerate((sizes.gallery, sizes.queries))
    )
    exact = _exact(queries, gallery, sizes.k)
    shapes = {"gallery": list(gallery.shape), "queries": list(queries.shape), "k": sizes.k}
    searcher = Searcher(gallery.cpu().numpy(), model="random vectors")
    asked = queries.cpu().numpy()
    built = "GPU build" if hasattr(faiss, "StandardGpuResources") else "CPU build"
    yield meter.row(
        "Searcher (faiss)",
        lambda: searcher.top_k(asked, sizes.k),
        items=sizes.queries,
        unit="queries",
        dtype="fp32",
        shapes=shapes,
        about=lambda found: {
            "recall": recall(torch.from_numpy(found[1]), exact),
            "faiss": f"{built}; Searcher searches on the CPU with either",
            "threads": faiss.omp_get_max_threads(),
        },
        warmup=1,
        repeats=3,
        on_cpu=True,
    )
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        yield meter.row(
            "torch matmul and topk",
            partial(_top_k, queries.to(dtype), gallery.to(dtype), sizes.k),
            items=sizes.queries,
            unit="queries",
            dtype=name,
            shapes=shapes,
            about=lambda found: {"recall": recall(found.cpu(), exact)},
            repeats=sizes.repeats,
        )


def _top_k(queries: Tensor, gallery: Tensor, k: int) -> Tensor:
    return (queries @ gallery.T).topk(k).indices


def recall(found: Tensor, exact: Tensor) -> float:
    """Mean share of the exact neighbours `[N, k]` that are among those found `[N, k]`."""
    return float((found[:, :, None] == exact[:, None, :]).any(1).float().mean())


def _exact(queries: Tensor, gallery: Tensor, k: int) -> Tensor:
    held = gallery.double().T
    return torch.cat([(part.double() @ held).topk(k).indices for part in queries.split(CHUNK)]).cpu()


def _unit(count: int, width: int, device: str, seed: int) -> Tensor:
    generator = torch.Generator(device).manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(count, width, device=device, generator=generator), dim=1)
