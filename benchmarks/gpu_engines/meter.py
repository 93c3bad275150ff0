"""How a row is measured: time by CUDA events, FLOPs by PyTorch's counter, their ratio against the data sheet's peak."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

Row = dict[str, Any]

CHECK = "a check of the script, no result"
# Dense bf16 TFLOP/s, tensor cores, by the name that CUDA gives the device. Source: NVIDIA's data sheets, whose figures
# "with sparsity" are halved. A MIG slice has another name, and so no peak here: it is a part of its chip.
PEAKS = {
    "NVIDIA B200": 2250.0,
    "NVIDIA H200": 989.5,
    "NVIDIA H200 NVL": 835.5,
    "NVIDIA H100 80GB HBM3": 989.5,
    "NVIDIA H100 NVL": 835.5,
    "NVIDIA H100 PCIe": 756.0,
    "NVIDIA A100-SXM4-80GB": 312.0,
    "NVIDIA A100-SXM4-40GB": 312.0,
    "NVIDIA A100 80GB PCIe": 312.0,
    "NVIDIA A100-PCIE-40GB": 312.0,
    "NVIDIA L40S": 362.0,
    "NVIDIA L4": 121.0,
}
PACKAGES = ("open_clip_torch", "faiss-cpu", "faiss-gpu", "diffusers", "transformers")
# One timing takes at least as long, in as many calls as that needs: a short call alone measures its launch.
LEAST_SECONDS = 0.05


def peak_of(device: str, dtype: str) -> tuple[float | None, str]:
    """The device's dense peak in TFLOP/s, and where it comes from, or why there is none."""
    if dtype != "bf16":
        return None, f"no peak is listed for {dtype}"
    if device not in PEAKS:
        return None, f"no peak is known for {device!r}"
    return PEAKS[device], "NVIDIA's data sheet, dense bf16"


def count_flops(call: Callable[[], object]) -> int:
    """FLOPs of one call; a multiplication and an addition are two.

    Matrix products and convolutions are counted, element-wise work is not. The fused attention kernels are switched off
    for the counted call, since the counter knows not all of them; causal attention counts as full.
    """
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            call()
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return int(counter.get_total_flops())


@dataclass(frozen=True)
class Meter:
    """Measures calls on one device; `quick` stands for toy sizes, whose figures mean nothing."""

    device: str
    quick: bool = False

    @property
    def name(self) -> str:
        """What CUDA calls the device, or cpu."""
        return torch.cuda.get_device_name() if self.device == "cuda" else "cpu"

    def row(
        self,
        engine: str,
        call: Callable[[], Any],
        *,
        items: int,
        unit: str,
        dtype: str,
        shapes: dict[str, Any],
        flops: int | None = None,
        about: Callable[[Any], dict[str, Any]] = lambda result: {},
        warmup: int = 2,
        repeats: int = 10,
        on_cpu: bool = False,
    ) -> Row:
        """Measure `call`, which handles `items` of `unit`, as one row; out of memory is a row with that reason.

        Args:
            flops: of one call; unset: counted. about: further facts, from what the first call returned.
            on_cpu: the call works on the CPU, whatever the device of the rest; its FLOPs are not counted.
        """
        device = "cpu" if on_cpu else self.name
        peak, source = peak_of(device, dtype)
        row: Row = {
            "engine": engine,
            "device": device,
            "dtype": dtype,
            "shapes": shapes,
            "items": items,
            "unit": unit,
            "status": "ok",
            "reason": None,
            "seconds": None,
            "per_second": None,
            "tflop": None,
            "tflops": None,
            "peak_tflops": peak,
            "peak_source": source,
            "share_of_peak": None,
            "peak_memory_gb": None,
            "facts": {},
            "versions": versions(),
            "note": CHECK if self.quick else None,
        }
        try:
            work = count_flops(call) if flops is None and not on_cpu else flops
            self.free()
            row["facts"] = about(call())
            timings, calls = self._timed(call, warmup - 1, repeats)
        except torch.OutOfMemoryError:
            return row | {"status": "error", "reason": "out of GPU memory at this size"}
        middle = statistics.median(timings)
        spread = {"median": middle, "low": min(timings), "high": max(timings), "repeats": repeats, "calls": calls}
        row |= {"seconds": spread, "per_second": items / middle}
        if self.device == "cuda" and not on_cpu:
            row["peak_memory_gb"] = torch.cuda.max_memory_allocated() / 1e9
        if work is not None:
            row |= {"tflop": work / 1e12, "tflops": work / 1e12 / middle}
            row["share_of_peak"] = row["tflops"] / peak if peak else None
        return row

    def _timed(self, call: Callable[[], Any], warmup: int, repeats: int) -> tuple[list[float], int]:
        """Seconds of a call, once a repeat, and how many calls each of them is the mean of."""
        for _ in range(warmup):
            call()
        calls = max(1, math.ceil(LEAST_SECONDS / self._seconds(call, 1)))
        return [self._seconds(call, calls) for _ in range(repeats)], calls

    def _seconds(self, call: Callable[[], Any], calls: int) -> float:
        if self.device == "cpu":
            begun = time.perf_counter()
            for _ in range(calls):
                call()
            return (time.perf_counter() - begun) / calls
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1000 / calls

    def free(self) -> None:
        """Give back what nobody holds, and begin to count peak memory anew."""
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


@cache
def versions() -> dict[str, str]:
    """Versions of what computes, as far as it is installed."""
    found = {"torch": torch.__version__, "cuda": str(torch.version.cuda)}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
