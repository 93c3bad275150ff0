"""How much memory does ingesting take, and does it grow? `python -m benchmarks.ingest`.

Each size is ingested in a process of its own: HF-style Parquet with the pictures' bytes inside, five captions a
picture. Memory is anonymous memory, summed over the driver and all processes that Ray starts below it, looked at ten
times a second. A last row writes and reads one table with more than 2 GiB of image bytes, without Ray.
"""

from __future__ import annotations

import hashlib
import io
import os
import resource
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from PIL import Image
from rich.console import Console
from rich.table import Table

from benchmarks.processes import Sampler, anonymous
from benchmarks.rows import MIB, RESULTS, Row
from benchmarks.turns import Settings, apart
from repair_ray.config import parse_config
from repair_ray.data.readers import read
from repair_ray.data.records import InlineImage, Record
from repair_ray.data.shards import ShardWriter
from repair_ray.data.store import ImageStore
from repair_ray.run import CAPTIONS, IMAGES, Run, write_json

CAPTIONS_EACH = 5
WORDS = ["red", "blue", "small", "large", "star", "ring", "heart", "left", "above", "two", "three", "striped"]
IMAGE = pa.struct([("bytes", pa.large_binary()), ("path", pa.string())])
COLUMNS = ("images", "captions", "seconds", "rows/s", "driver MiB", "all MiB", "of which workers idle MiB")


def main(
    images: Annotated[int, typer.Option(help="pictures of the largest size; 1/16 and 1/4 of it come first")] = 200_000,
    table_mb: Annotated[int, typer.Option(help="image bytes in one table, in MiB")] = 2_200,
    output: Annotated[Path, typer.Option(help="folder of the runs; removed afterwards")] = Path("runs/ingest"),
) -> None:
    """Measure, and write benchmarks/results/ingest.json and ingest.md."""
    result = measure(images, table_mb, output)
    keep(result)
    Console().print(table(result))


def measure(images: int, table_mb: int, output: Path) -> dict[str, Any]:
    """What `keep` takes."""
    shutil.rmtree(output, ignore_errors=True)
    sizes = [apart(ingest_one, size, output / str(size)) for size in (images // 16, images // 4, images)]
    made = {"captions_each": CAPTIONS_EACH, "sizes": sizes, "table": apart(one_table, table_mb, output / "table")}
    shutil.rmtree(output)
    return made


def keep(result: dict[str, Any]) -> None:
    """Write benchmarks/results/ingest.json and ingest.md."""
    RESULTS.mkdir(exist_ok=True)
    write_json(RESULTS / "ingest.json", result)
    (RESULTS / "ingest.md").write_text(markdown(result), encoding="utf-8")


def rows(settings: Settings) -> Iterator[Row]:
    """Rate and memory of the largest size; there is no peer, so the smallest size stands for one."""
    images = 800 if settings.quick else 200_000
    result = measure(images, 16 if settings.quick else 2_200, settings.folder / "ingest")
    if not settings.quick:
        keep(result)
    first, _, last = result["sizes"]
    name, rows_each = f"ingest {images:,} images", 1 + CAPTIONS_EACH
    yield {
        "name": name,
        "ours": last["rows/s"],
        "peer": first["rows/s"],
        "peer_name": f"of {first['images']:,} images",
        "ratio": round(last["rows/s"] / first["rows/s"], 3),
        "unit": "rows/s",
        "n": last["images"] * rows_each,
        "note": f"in {last['seconds']:.0f} s, start of the actors counted",
    }
    for kind in ("driver MiB", "all MiB"):
        yield {
            "name": f"{name}, memory of {'the driver' if kind == 'driver MiB' else 'all'}",
            "ours": last[kind],
            "peer": first[kind],
            "peer_name": f"of {first['images']:,} images",
            "ratio": round(first[kind] / last[kind], 3),
            "unit": "MiB",
            "n": last["images"] * rows_each,
            "note": f"anonymous memory; {last['images'] / first['images']:.0f} times as many images",
        }


def ingest_one(images: int, folder: Path) -> dict[str, Any]:
    """Ingest that many pictures, nine in ten of them for training."""
    from repair_ray.stages.graph import start_ray
    from repair_ray.stages.ingest import ingest
    from repair_ray.stages.sources import sources_of

    tests = images // 10
    paths = {"train": folder / "train.parquet", "test": folder / "test.parquet"}
    _write_pairs(paths["train"], images - tests, 0)
    _write_pairs(paths["test"], tests, images)
    config = parse_config({"data": {name: str(path) for name, path in paths.items()}, "pool": {"rows_per_block": 4096}})
    start_ray()
    run = Run(folder / "run")
    memory = Memory()
    with memory:
        begun = time.monotonic()
        ingest(run, config, {}, sources_of(config.data, folder))
        seconds = time.monotonic() - begun
    made = {name: run.manifest(name) or {} for name in (IMAGES, CAPTIONS)}
    assert made[IMAGES]["statuses"] == {"ok": images}, made[IMAGES]["reasons"]
    rows = images * (1 + CAPTIONS_EACH)
    return {
        "images": images,
        "captions": made[CAPTIONS]["rows"],
        "seconds": round(seconds, 1),
        "rows/s": round(rows / seconds),
        "driver MiB": round(memory.driver / MIB),
        "all MiB": round(memory.all / MIB),
        "of which workers idle MiB": round(memory.idle / MIB),
    }


def one_table(megabytes: int, folder: Path) -> dict[str, Any]:
    """One Parquet table with that many MiB of image bytes: read, written to shards, and every byte read back."""
    folder.mkdir(parents=True)
    path, count = folder / "all.parquet", megabytes
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.monotonic()
    sums: dict[str, str] = {}
    schema = pa.schema([("image", IMAGE), ("caption", pa.string())])
    with pq.ParquetWriter(path, schema, compression="none") as writer:
        for number in range(count):
            data = np.random.default_rng(number).bytes(MIB)
            sums[f"{number}.jpg"] = hashlib.sha256(data).hexdigest()
            row = {"image": {"bytes": data, "path": f"{number}.jpg"}, "caption": f"picture {number}"}
            writer.write_table(pa.Table.from_pylist([row], schema))
    written = time.monotonic()
    members = {}
    with ShardWriter(str(folder / "shards"), "source", 256 * MIB, str(folder)) as shards:
        for item in read(str(path), batch_rows=8):
            assert isinstance(item, Record) and isinstance(item.image, InlineImage)
            members[item.image.name] = shards.add(item.image.data, hashlib.sha256(item.image_id.encode()).hexdigest())
    store = ImageStore(str(folder))
    for name, member in members.items():
        reference = member.ref()
        data = store.bytes(reference.uri, reference.offset, reference.length)
        assert hashlib.sha256(data).hexdigest() == sums[name]
    return {
        "MiB": count,
        "read": len(members),
        "write seconds": round(written - begun, 1),
        "read seconds": round(time.monotonic() - written, 1),
        "grown by MiB": round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024),
    }


class Memory(Sampler):
    """The highest anonymous memory, in bytes, of this process and of all below it while the context is open.

    `idle`: what the processes below took before the work began.
    """

    every = 0.1

    def __init__(self) -> None:
        super().__init__()
        self.driver = self.all = 0
        self.idle = sum(size for process, size in anonymous(os.getpid()).items() if process != os.getpid())

    def look(self) -> None:
        sizes = anonymous(os.getpid())
        self.driver = max(self.driver, sizes.get(os.getpid(), 0))
        self.all = max(self.all, sum(sizes.values()))


def _write_pairs(path: Path, count: int, first: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([("image", IMAGE), ("image_id", pa.int64()), ("captions", pa.list_(pa.string()))])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, count, 1000):
            numbers = range(first + start, first + min(start + 1000, count))
            rows = [{"image": _picture(n), "image_id": n, "captions": _captions(n)} for n in numbers]
            writer.write_table(pa.Table.from_pylist(rows, schema))


def _picture(number: int) -> dict[str, Any]:
    # The number is in the pixels, so that no picture comes twice.
    pixels = np.random.default_rng(number).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    return {"bytes": buffer.getvalue(), "path": f"{number}.png"}


def _captions(number: int) -> list[str]:
    rng = np.random.default_rng(number)
    return [f"picture {number} {i}: " + " ".join(rng.choice(WORDS, 10).tolist()) for i in range(CAPTIONS_EACH)]


def table(result: dict[str, Any]) -> Table:
    """For the terminal."""
    view = Table(title="Ingest", caption=_sentence(result["table"]))
    for column in COLUMNS:
        view.add_column(column, justify="right")
    for row in result["sizes"]:
        view.add_row(*(f"{row[column]:,}" for column in COLUMNS))
    return view


def markdown(result: dict[str, Any]) -> str:
    """For the README."""
    lines = [
        "| " + " | ".join(COLUMNS) + " |",
        "|" + "---:|" * len(COLUMNS),
        *("| " + " | ".join(f"{row[column]:,}" for column in COLUMNS) + " |" for row in result["sizes"]),
        "",
        _sentence(result["table"]),
    ]
    return "\n".join(lines) + "\n"


def _sentence(row: dict[str, Any]) -> str:
    return (
        f"One table with {row['MiB']:,} MiB of image bytes in {row['read']:,} rows: written in "
        f"{row['write seconds']} s, read, put into shards and read back in {row['read seconds']} s; "
        f"the process grew by {row['grown by MiB']:,} MiB."
    )


if __name__ == "__main__":
    typer.run(main)
