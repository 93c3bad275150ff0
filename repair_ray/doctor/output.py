"""The output folder: can it be written and read back, and is there room for what a run keeps?"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from repair_ray.config import Config
from repair_ray.data.files import expand, filesystem
from repair_ray.data.records import DataError
from repair_ray.doctor.needs import diffuses, edits
from repair_ray.doctor.text import size
from repair_ray.report.findings import Finding

PROBE = "probe"
# A drawn scene of the demo as PNG, and an edited picture as JPEG.
SCENE_BYTES = 5_000
EDITED_BYTES = 200_000
# While it trains: weights and both moments of AdamW in fp32 beside the best weights, twice, and the one being written.
CHECKPOINT_BYTES = 3 * 16
WEIGHT_BYTES = 4


@contextmanager
def scratch(config: Config) -> Iterator[Path]:
    """A folder of the doctor's own beside the run directory, or above it where that is not there yet; gone afterwards.

    Raises:
        OSError: it cannot be made, or what is written there is not read back.
    """
    place = Path(config.output).absolute()
    while not place.exists():
        place = place.parent
    with tempfile.TemporaryDirectory(prefix=".repair-ray-doctor-", dir=place, ignore_cleanup_errors=True) as folder:
        probe = Path(folder) / PROBE
        probe.write_text(folder, encoding="utf-8")
        if probe.read_text(encoding="utf-8") != folder:
            raise OSError(f"what was written to {probe} is not what is read back")
        yield Path(folder)


def unwritable(config: Config, error: OSError) -> Finding:
    """The finding for an error of `scratch`."""
    fact = f"cannot write to {Path(config.output).absolute()}: {error.strerror or error}"
    return Finding("output", "failed", fact, "set output to a writable folder")


def check_output(config: Config, folder: Path, parameters: int | None) -> Finding:
    """Whether the run directory can be written, and the disk holds roughly what a run keeps.

    Args:
        folder: where `scratch` could write. parameters: of the retriever; None where that is not known.
    """
    run_dir = config.run_dir.absolute()
    if run_dir.exists() and not (run_dir.is_dir() and os.access(run_dir, os.W_OK)):
        return Finding("output", "failed", f"{run_dir} is there and cannot be written", "take another name or output")
    free = shutil.disk_usage(folder).free
    parts = disk_need(config, parameters)
    need = sum(parts.values())
    how = ", ".join(f"{size(amount)} {name}" for name, amount in parts.items() if amount)
    fact = f"{run_dir} can be written; {size(free)} free, roughly {size(need)} needed ({how})"
    if parameters is None:
        fact += "; checkpoints are not counted, as the size of the retriever is not known"
    if free < need:
        return Finding("output", "failed", fact, "free space, or set output to a larger disk")
    if free < 2 * need:
        return Finding("output", "warning", fact, "the estimate is rough: more space is safer")
    return Finding("output", "ok", fact)


def disk_need(config: Config, parameters: int | None) -> dict[str, int]:
    """Bytes of what a run keeps, by what they are for; tables of vectors and texts are not counted.

    Pictures count where the run copies them: those inside Parquet files go to tar shards as they are.
    """
    world = config.data.world
    scenes = world.train + world.validation + world.test if world else 0
    # Once as the world's files and once as shards.
    pictures = 2 * scenes * SCENE_BYTES if world else _inline(config)
    trainings = 1 + (config.base is not None) + len(config.control_names) + config.mining.folds
    edited = 0
    if edits(config) and config.edit.image_editor != "none" and config.mining.budget:
        each = EDITED_BYTES if diffuses(config) else SCENE_BYTES
        edited = config.mining.budget * config.edit.candidates * each
    return {
        "of pictures": pictures,
        "of checkpoints": (parameters or 0) * CHECKPOINT_BYTES,
        f"of weights of {trainings} trainings": (parameters or 0) * WEIGHT_BYTES * trainings,
        "of edited pictures": edited,
    }


def _inline(config: Config) -> int:
    """The size of the data's Parquet files; 0 where they are not there, which another check tells."""
    data = config.data
    total = 0
    for path in {data.path, data.train, data.validation, data.test} - {None}:
        try:
            for file in expand(str(path)):
                where, inner = filesystem(file)
                total += where.get_file_info(inner).size or 0 if file.endswith(".parquet") else 0
        except (DataError, OSError):
            continue
    return total
