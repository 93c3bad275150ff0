"""What one GPU does with the engines, without Ray: `python -m benchmarks.gpu_engines`

Six minutes on one H200. Every row is written as soon as it is measured; a part that is finished is not measured again,
and one that was cut is, from its beginning. `--device cpu --quick` goes through all of it at toy sizes.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from benchmarks.gpu_engines import diffusion, encoder, objective, search, training
from benchmarks.gpu_engines.meter import CHECK, Meter, Row
from benchmarks.gpu_engines.table import line, markdown, title, unfinished
from repair_ray.run import write_json

RESULTS = Path(__file__).parents[1] / "results" / "gpu_engines.json"
CHECKED = Path("runs/gpu_engines_check.json")
PARTS: dict[str, Callable[[Meter], Iterator[Row]]] = {
    "encoder": encoder.rows,
    "search": search.rows,
    "objective": objective.rows,
    "training": training.rows,
    "diffusion": diffusion.rows,
    "diffusion_compiled": diffusion.compiled_rows,
}
OPTIONAL = ("diffusion_compiled",)


def main(
    device: Annotated[str, typer.Option(help="cuda, or cpu together with --quick")] = "cuda",
    quick: Annotated[bool, typer.Option("--quick", help="toy sizes: a check of the script, no result")] = False,
    output: Annotated[
        Path | None,
        typer.Option(help="JSON file; unset: benchmarks/results/gpu_engines.json, with --quick one below runs/"),
    ] = None,
    only: Annotated[str | None, typer.Option(help=f"parts, by comma: {', '.join(PARTS)}")] = None,
    compiled: Annotated[bool, typer.Option("--compile", help="also the diffusion editor compiled: minutes")] = False,
) -> None:
    """Measure the parts that the output file does not hold yet, and write its table beside it."""
    parts = _selected(only, compiled)
    _check_device(device, quick)
    meter = Meter(device, quick)
    output = output or (CHECKED if quick else RESULTS)
    record = _record(output, meter)
    torch.set_float32_matmul_precision("highest")  # fp32 means fp32, not TF32
    if device == "cpu":
        torch.set_num_threads(1)  # at toy sizes, threads wait for each other longer than they work
    failed = [part for part in parts if not _measured(part, record, meter, output)]  # all are tried
    typer.echo(f"{title(record)}; the table is {output.with_suffix('.md')}")
    if failed:
        _refuse("\n".join(unfinished(record)), 1)


def _selected(only: str | None, compiled: bool) -> list[str]:
    if only is None:
        return [part for part in PARTS if compiled or part not in OPTIONAL]
    parts = [part.strip() for part in only.split(",")] + ([*OPTIONAL] if compiled else [])
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        _refuse(f"--only {', '.join(unknown)}: no such part; there are {', '.join(PARTS)}")
    return list(dict.fromkeys(parts))


def _check_device(device: str, quick: bool) -> None:
    if device not in ("cuda", "cpu"):
        _refuse(f"--device {device}: give cuda or cpu")
    if device == "cuda" and not torch.cuda.is_available():
        _refuse("there is no CUDA device here; --device cpu --quick checks the script at toy sizes")
    if device == "cpu" and not quick:
        _refuse("--device cpu would take hours at full size; add --quick for a check of the script at toy sizes")


def _record(output: Path, meter: Meter) -> dict[str, Any]:
    """What the output file holds, or a new record."""
    new: dict[str, Any] = {"device": meter.name, "note": CHECK if meter.quick else None, "parts": {}}
    if not output.exists():
        return new
    try:
        record = json.loads(output.read_text(encoding="utf-8"))
        held = {name: record[name] for name in new}
    except (ValueError, KeyError, TypeError):
        _refuse(f"{output} is no record of this benchmark; give another --output")
    if (held["device"], held["note"]) != (new["device"], new["note"]):
        what = f"{held['device']}" + (f" ({held['note']})" if held["note"] else "")
        _refuse(f"{output} holds figures of {what}; give another --output, or remove the file")
    return held


def _measured(part: str, record: dict[str, Any], meter: Meter, output: Path) -> bool:
    """Measure a part, unless it is there; False where it could not be, with the reason in the record."""
    if record["parts"].get(part, {}).get("finished"):
        typer.echo(f"{part}: in {output} already; remove the part there to measure it again")
        return True
    made: dict[str, Any] = {"finished": False, "reason": None, "rows": []}
    record["parts"][part] = made
    try:
        for row in PARTS[part](meter):
            made["rows"].append(row)
            _write(record, output)
            typer.echo(line(part, row))
        made["finished"] = True
    except diffusion.Unavailable as error:
        made["reason"] = str(error)
    except Exception as error:  # the device's time is short: the other parts are measured all the same
        traceback.print_exc()
        made["reason"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    meter.free()
    _write(record, output)
    return bool(made["finished"])


def _write(record: dict[str, Any], output: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    write_json(output, record)
    output.with_suffix(".md").write_text(markdown(record), encoding="utf-8")


def _refuse(message: str, code: int = 2) -> Any:
    typer.echo(message, err=True)
    raise typer.Exit(code)


if __name__ == "__main__":
    typer.run(main)
