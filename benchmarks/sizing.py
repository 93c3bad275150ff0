"""Time and money of a round by stage, from measured rows and stated assumptions: `python -m benchmarks.sizing`.

Prints the tables of cluster/SIZING.md; `--write` writes that page. Other prices, GPUs or sizes: `--inputs FILE`, in the
form of benchmarks/sizing.yaml.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from benchmarks.rows import RESULTS, read_rows

INPUTS = Path(__file__).with_suffix(".yaml")
PAGE = Path(__file__).parents[1] / "cluster" / "SIZING.md"
SECTIONS = ("prices", "speeds", "shares", "workload")
HOUR, GB = 3600.0, 1e9
DIRECTIONS = 2
# A share of what the engine does alone: a graph that happens to be faster is no reason to expect less.
CAPPED = "shares"


class SizingError(Exception):
    """Inputs that cannot be used; the message names the key."""


@dataclass(frozen=True)
class Input:
    """A number, what it counts, and where it is from."""

    value: float
    unit: str
    source: str


@dataclass(frozen=True)
class Size:
    """What a run is to work on. `captions` of an image; `failures` of both directions that are audited."""

    name: str
    images: int
    captions: int
    failures: int
    epochs: int
    gpus: int


@dataclass(frozen=True)
class Use:
    """Seconds of GPUs and of cores, and GB that are kept."""

    gpu: float = 0.0
    core: float = 0.0
    gb: float = 0.0


Inputs = Mapping[str, Input]
Formula = Callable[[Size, Mapping[str, float]], Use]


def ingest(size: Size, x: Mapping[str, float]) -> Use:
    """core s = (images + captions) / ingest"""
    rows = size.images * (1 + size.captions)
    return Use(core=rows / x["ingest"], gb=rows * 300 / GB)


def embed(size: Size, x: Mapping[str, float]) -> Use:
    """GPU s = (images / images/s + captions / texts/s) / embed; core s = images / decode"""
    captions = size.images * size.captions
    gpu = (size.images / x["images"] + captions / x["texts"]) / x["embed"]
    return Use(gpu, size.images / x["decode"], (size.images + captions) * 4 * x["width"] / GB)


def mine_cores(size: Size, x: Mapping[str, float]) -> Use:
    """core s = 2 directions x 2 x images x captions x width / search_core"""
    return Use(core=_search(size, x) / x["search_core"])


def mine_gpus(size: Size, x: Mapping[str, float]) -> Use:
    """GPU s = 2 directions x 2 x images x captions x width / search_gpu"""
    return Use(gpu=_search(size, x) / x["search_gpu"])


def mine_ivf(size: Size, x: Mapping[str, float]) -> Use:
    """core s = ivf x that of the exact search; building the index is left out"""
    return Use(core=x["ivf"] * _search(size, x) / x["search_core"])


def audit(size: Size, x: Mapping[str, float]) -> Use:
    """GPU s = failures x (audit_in / tokens_in + audit_out / tokens_out) / language"""
    each = x["audit_in"] / x["tokens_in"] + x["audit_out"] / x["tokens_out"]
    return Use(gpu=size.failures * each / x["language"], gb=size.failures * 1000 / GB)


def instruct(size: Size, x: Mapping[str, float]) -> Use:
    """GPU s = failures x valid x (instruct_in / tokens_in + instruct_out / tokens_out) / language"""
    each = x["instruct_in"] / x["tokens_in"] + x["instruct_out"] / x["tokens_out"]
    return Use(gpu=size.failures * x["valid"] * each / x["language"])


def edit(size: Size, x: Mapping[str, float]) -> Use:
    """GPU s = failures / 2 x valid x candidates x edit / (editing x streaming)"""
    edits = _candidates(size, x)
    return Use(gpu=edits * x["edit"] / (x["editing"] * x["streaming"]), gb=edits * x["picture_kb"] * 1000 / GB)


def select(size: Size, x: Mapping[str, float]) -> Use:
    """GPU s = failures / 2 x valid x candidates x (1 / images/s + 1 / texts/s); core s = as many pictures / decode"""
    each = _candidates(size, x)
    return Use(each / x["images"] + each / x["texts"], each / x["decode"])


def train(size: Size, x: Mapping[str, float]) -> Use:
    """GPU s = images x epochs x (1 + 2 x share of anchors with a corrected pair) / (train x training)"""
    share = min(1.0, size.failures * x["valid"] * x["kept"] / size.images)
    items = size.images * size.epochs * (1 + 2 * share)
    return Use(items / (x["train"] * x["training"]), items / x["decode"])


STAGES: dict[str, Formula] = {
    "ingest": ingest,
    "embed": embed,
    "mine, exact, on cores": mine_cores,
    "mine, exact, on GPUs": mine_gpus,
    "mine, IVF, on cores": mine_ivf,
    "audit": audit,
    "instruct": instruct,
    "edit": edit,
    "select": select,
    "train": train,
}
# Of the exact ways the cheaper one counts in the sum.
MINING = [name for name in STAGES if name.startswith("mine")]
EXACT = [name for name in MINING if "exact" in name]


def _search(size: Size, x: Mapping[str, float]) -> float:
    return DIRECTIONS * 2 * size.images * (size.images * size.captions) * x["width"]


def _candidates(size: Size, x: Mapping[str, float]) -> float:
    """Edited pictures, and as many edited texts: half of the failures are of each direction."""
    return size.failures / DIRECTIONS * x["valid"] * x["candidates"]


def money(use: Use, x: Mapping[str, float]) -> float:
    """$ of what is used, and of what is kept for `months`."""
    return use.gpu / HOUR * x["gpu_hour"] + use.core / HOUR * x["core_hour"] + use.gb * x["gb_month"] * x["months"]


def seconds(use: Use, size: Size, x: Mapping[str, float]) -> float:
    """On all GPUs and the cores that come with them, whichever takes longer, and the start."""
    cores = size.gpus * x["cores_per_gpu"]
    return max(use.gpu / size.gpus, use.core / cores) / x["scale"] + x["start"]


def estimate(size: Size, x: Mapping[str, float]) -> dict[str, Use]:
    """What each stage uses."""
    return {name: formula(size, x) for name, formula in STAGES.items()}


def counted(uses: Mapping[str, Use], x: Mapping[str, float]) -> dict[str, Use]:
    """Every stage, and of the ways to mine the cheaper exact one alone."""
    best = min(EXACT, key=lambda name: money(uses[name], x))
    return {name: use for name, use in uses.items() if name not in MINING or name == best}


def read_inputs(path: Path, results: Path = RESULTS) -> tuple[dict[str, Input], list[Size]]:
    """The inputs by name, measured ones from the rows of `results`, and the sizes.

    Raises:
        SizingError: a key that is missing, doubled or no number; names it.
    """
    tree: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    measured = _measured(results)
    found: dict[str, Input] = {}
    for section in SECTIONS:
        for name, given in (tree.get(section) or {}).items():
            if name in found:
                raise SizingError(f"{path}: {section}.{name} stands in another section, too")
            found[name] = _input(f"{path}: {section}.{name}", given, measured, capped=section == CAPPED)
    try:
        sizes = [Size(**size) for size in tree["sizes"]]
    except (KeyError, TypeError) as error:
        raise SizingError(f"{path}: sizes: each takes {', '.join(Size.__annotations__)} ({error})") from None
    return found, sizes


def _input(key: str, given: Any, measured: Mapping[str, Mapping[str, Any]], *, capped: bool) -> Input:
    try:
        value, unit, why = float(given["value"]), str(given["unit"]), str(given["why"])
        name, column, times = given.get("row"), given.get("column"), float(given.get("times", 1.0))
    except (KeyError, TypeError, ValueError) as error:
        raise SizingError(f"{key} takes value, unit and why, or also row, column and times: {error!r}") from None
    if value <= 0:
        raise SizingError(f"{key}.value={value:g} must be above 0")
    source = "assumed" + (f": {why}" if why else "")
    if name is not None and name in measured:
        value = float(measured[name][column]) * times
        source = f"row `{name}`" + (f": {why}" if why else "")
    elif name is not None:
        source += f"; until row `{name}` is measured"
    return Input(min(value, 1.0) if capped else value, unit, source)


def _measured(results: Path) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    # What `python -m benchmarks` has measured comes last, and so counts.
    for name in ("search.json", "throughput.json"):
        found |= {row["name"]: row for row in read_rows(results / name)}
    return found


def main(
    inputs: Annotated[Path, typer.Option(help="prices, speeds, shares, workload and sizes")] = INPUTS,
    write: Annotated[bool, typer.Option(help="write cluster/SIZING.md")] = False,
) -> None:
    """Print the page, or write it."""
    from benchmarks.sizing_page import page

    try:
        text = page(*read_inputs(inputs))
    except SizingError as error:
        raise typer.BadParameter(str(error)) from None
    if write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    typer.run(main)
