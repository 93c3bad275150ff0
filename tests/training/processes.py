"""Starts the processes of a gloo group, and reads what they have written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np


def run_processes(worker: Path, size: int, folder: Path) -> list[dict[str, np.ndarray]]:
    """What each rank of `worker RANK WORLD_SIZE RENDEZVOUS_FILE OUTPUT.npz` has written to its output."""
    outputs = [folder / f"{rank}.npz" for rank in range(size)]
    processes = [
        subprocess.Popen(
            [sys.executable, str(worker), str(rank), str(size), str(folder / "meeting"), str(output)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, output in enumerate(outputs)
    ]
    try:
        for process in processes:
            _, errors = process.communicate(timeout=300)
            assert process.returncode == 0, errors[-3000:]
    finally:
        for process in processes:
            process.kill()
    return [dict(np.load(output)) for output in outputs]
