"""The tables of `repair-ray plan`: the nodes, and what each stage takes of them."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from repair_ray.report.plain import safe_text, titled
from repair_ray.report.results import NOTHING, count


def nodes_table(plan: dict[str, Any]) -> Table:
    """The nodes, equal ones in one row; `plan` is what `Plan.as_json` gives."""
    table = titled("Nodes")
    table.add_column("node", overflow="fold")
    for name in ("nodes", "CPUs", "GPUs", "GPU type", "memory"):
        table.add_column(name, justify="right", no_wrap=True)
    kinds: dict[tuple[Any, ...], list[str]] = {}
    for node in plan["nodes"]:
        type_of = ", ".join(node["accelerators"]) or NOTHING
        kind = (node["there"], node["cpus"], node["gpus"], type_of, _memory(node["memory_mb"]))
        kinds.setdefault(kind, []).append(node["name"])
    for (there, cpus, gpus, type_of, memory), names in kinds.items():
        named = names[0] if len(set(names)) == 1 else f"{names[0]} and others"
        place = safe_text(named if there else f"{named}, to be started", "" if there else "dim")
        table.add_row(place, count(len(names)), f"{cpus:g}", f"{gpus:g}", type_of, memory)
    return table


def stages_table(plan: dict[str, Any]) -> Table:
    """One row a pool of a stage, in run order, below the folder of its product; a stage that does not fit is red.

    `rows x blocks`: of one block, and blocks sent to one actor at a time. What is held names the scarcest first.
    """
    table = titled("Stages")
    table.add_column("stage", overflow="fold", min_width=16)
    table.add_column("actors of", overflow="fold", min_width=14)
    table.add_column("one takes", min_width=10)
    table.add_column("rows x\nblocks", justify="right", vertical="bottom")
    table.add_column("stage holds", vertical="bottom")
    table.add_column("rows", justify="right", vertical="bottom", no_wrap=True)
    place = ""
    for stage in plan["stages"]:
        folder, _, name = stage["name"].rpartition("/")
        if folder != place:
            table.add_row(safe_text(f"{folder}/", "bold"))
            place = folder
        rows = NOTHING if stage["rows"] is None else count(stage["rows"])
        title: Any = safe_text(f"  {name}", "red" if stage["problem"] else "")
        held = _held(stage, plan["has"])
        for pool in stage["pools"]:
            table.add_row(
                title,
                safe_text(f"{_actors(pool)} of {pool['key']}"),
                safe_text(_each(pool)),
                _blocks(pool),
                held,
                rows,
            )
            # What is said of the whole stage stands in the line of its first pool.
            title, held, rows = "", "", ""
    return table


def _actors(pool: dict[str, Any]) -> str:
    return f"{pool['actors']}" + (f"-{pool['max_actors']}" if pool["max_actors"] > pool["actors"] else "")


def _blocks(pool: dict[str, Any]) -> str:
    return NOTHING if pool["rows_per_block"] is None else f"{pool['rows_per_block']} x {pool['blocks_in_flight']}"


def _each(pool: dict[str, Any]) -> str:
    parts = [f"{pool['num_cpus']:g} CPU"]
    if pool["num_gpus"]:
        parts.append(f"{pool['num_gpus']:g} {pool['accelerator_type'] or 'GPU'}")
    if pool["memory_mb"]:
        parts.append(_memory(pool["memory_mb"]))
    parts += [f"{key}={value}" for key, value in pool["labels"].items()]
    return ", ".join(parts)


def _held(stage: dict[str, Any], has: dict[str, float]) -> str:
    holds = stage["holds"]
    parts = {"CPU": f"CPU {holds['cpus']:g}/{has['cpus']:g}", "GPU": f"GPU {holds['gpus']:g}/{has['gpus']:g}"}
    parts["memory"] = f"{_memory(holds['memory_mb'])} of {_memory(has['memory_mb'])}"
    taken = [name for name, key in (("CPU", "cpus"), ("GPU", "gpus"), ("memory", "memory_mb")) if holds[key]]
    taken.sort(key=lambda name: name != stage["bottleneck"])
    return ", ".join(parts[name] for name in taken)


def _memory(mebibytes: float) -> str:
    return f"{mebibytes / 1024:,.1f} GiB"
