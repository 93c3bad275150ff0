"""From labels to a benchmark: one label a pair, the completeness of the candidates, and the files."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.config import Config
from repair_ray.data.access import image_store
from repair_ray.data.shards import ShardWriter
from repair_ray.evaluation.benchmark_files import Benchmark, Picture, Query, write_benchmark
from repair_ray.evaluation.completeness import completeness
from repair_ray.evaluation.votes import NO, UNSURE, YES, decide_all
from repair_ray.multimatch.gallery import gallery_ids
from repair_ray.multimatch.products import BENCHMARK, MATCHES, PAIRS, PEOPLE, QUERIES, section_of, settings_of, usable
from repair_ray.run import IMAGES, Recipe, Run, RunError
from repair_ray.stages.sink import check_errors
from repair_ray.tables import multimatch as benchmark_tables

DEPTH = 20
DENOMINATOR = "min"
NOT_LABELLED = "not labelled"
PICTURES = "pictures"


def labels_in(run: Run, products: Sequence[str]) -> dict[str, dict[str, str]]:
    """`{verifier: {pair: label}}` of `labels` tables; pairs that a verifier could not label are left out.

    People go by their names with `people/` before them, so that nobody is taken for a machine.
    """
    found: dict[str, dict[str, str]] = {}
    for product in products:
        rows = usable(run.read(product)).to_pylist()
        prefix = "people/" if product.startswith(f"{PEOPLE}/") else ""
        for row in rows:
            found.setdefault(prefix + row["verifier"], {})[row["pair_id"]] = row["label"]
    return found


def make_matches(run: Run, config: Config, machines: Sequence[str], people: Sequence[str]) -> None:
    """Make the `matches` table: one label for each pair. Pairs that are not decided are rejected rows.

    Args:
        machines, people: products of `labels`.

    Raises:
        RunError: too many pairs that no verifier could label.
    """
    rule = section_of(config).verify.decide
    before = run.manifest(MATCHES)
    parents = (PAIRS, *machines, *people)
    if before is not None and set(before["recipe"]["parents"]) != set(parents):
        run.redo(MATCHES)  # somebody has labelled since
    recipe = Recipe(settings_of(verify={"decide": rule}), parents)
    if run.ready(MATCHES, recipe):
        return
    start = time.monotonic()
    decided = decide_all(labels_in(run, people), labels_in(run, machines), rule)
    failed = _reasons(run, machines)
    rows = []
    for pair in run.read(PAIRS, ["pair_id", "query_id", "image_id", "proposed"]).to_pylist():
        label, votes = decided.get(pair["pair_id"], (UNSURE, []))
        reason = None
        status = tables.OK
        if not votes:
            reason = failed.get(pair["pair_id"])
            status = tables.REJECTED if reason is None else tables.ERROR
            reason = reason or NOT_LABELLED
        elif label == UNSURE:
            said = {vote.rpartition(": ")[2] for vote in votes}
            status, reason = tables.REJECTED, "verifiers disagree" if {YES, NO} <= said else UNSURE
        rows.append({**pair, "label": label, "votes": votes, "status": status, "reason": reason})
    table = tables.to_table(rows, benchmark_tables.DECISIONS.schema)
    check_errors(table, config.faults, MATCHES)
    run.commit(
        MATCHES,
        recipe,
        benchmark_tables.DECISIONS,
        table,
        time.monotonic() - start,
        verifiers={"machines": list(machines), "people": list(people)},
        completeness=completeness_facts(run, table),
    )


def _reasons(run: Run, products: Sequence[str]) -> dict[str, str]:
    """Why a machine could not label a pair, where it could not."""
    found: dict[str, str] = {}
    for product in products:
        table = run.read(product, ["pair_id", "status", "reason"])
        bad = table.filter(pc.equal(table["status"], tables.ERROR))
        found |= dict(zip(bad["pair_id"].to_pylist(), bad["reason"].to_pylist(), strict=True))
    return found


def completeness_facts(run: Run, matches: pa.Table) -> dict[str, Any]:
    """`completeness` of the candidates over all queries, over held-out ones, and over the others.

    What is not decided counts as no match, inside and outside alike. `not_labelled`: pairs that nobody has labelled;
    while there are any the figures are None, since they would count what is still open as wrong.
    """
    held_out = {row["query_id"] for row in usable(run.read(QUERIES)).to_pylist() if row["held_out"]}
    queries = set(usable(run.read(QUERIES))["query_id"].to_pylist())
    gallery = len(gallery_ids(run))
    parts = {"all": queries, "held_out": held_out, "with_teachers": queries - held_out}
    found: dict[str, Any] = {"not_labelled": pc.sum(pc.equal(matches["reason"], NOT_LABELLED)).as_py() or 0}
    for name, part in parts.items():
        if not part or (name != "all" and not held_out):
            continue
        own = matches.filter(pc.is_in(matches["query_id"], pa.array(sorted(part))))
        inside = own.filter(own["proposed"])
        outside = own.filter(pc.invert(own["proposed"]))
        counts = (
            _yes(inside),
            gallery * len(part) - len(inside),
            len(outside),
            _yes(outside),
        )
        found[name] = None if found["not_labelled"] else completeness(*counts).facts()
    return found


def _yes(table: pa.Table) -> int:
    return int(pc.sum(pc.equal(table["label"], YES)).as_py() or 0)


def make_benchmark(run: Run, config: Config) -> Path:
    """Write the benchmark's files; returns their folder.

    Queries without any match stay, with an empty list.

    Raises:
        RunError: no query has a match.
    """
    chosen = section_of(config)
    recipe = Recipe(settings_of(pictures=chosen.pictures), (MATCHES,))
    folder = run.path(BENCHMARK)
    if run.ready(BENCHMARK, recipe):
        return folder
    start = time.monotonic()
    table = run.read(MATCHES)
    by_label: dict[str, dict[str, list[str]]] = {YES: defaultdict(list), UNSURE: defaultdict(list)}
    for row in table.sort_by([("query_id", "ascending"), ("image_id", "ascending")]).to_pylist():
        if row["label"] in by_label:
            by_label[row["label"]][row["query_id"]].append(row["image_id"])
    if not by_label[YES]:
        raise RunError(f"{MATCHES}: no query has a match, so there is nothing to measure by")
    rows = usable(run.read(QUERIES)).to_pylist()
    queries = [Query(row["query_id"], row["text"], row["held_out"]) for row in rows]
    gallery = _gallery(run, config, folder)
    manifest = run.manifest(MATCHES) or {}
    facts = {
        "name": config.name,
        "split": chosen.split,
        "queries": len(queries),
        "queries_without_match": sum(not by_label[YES].get(query.id) for query in queries),
        "pictures": len(gallery),
        "matches": sum(map(len, by_label[YES].values())),
        "ignored": sum(map(len, by_label[UNSURE].values())),
        "verifiers": manifest["verifiers"],
        "completeness": manifest["completeness"],
        "background": list(config.data.background),
        "k": DEPTH,
        "map_denominator": DENOMINATOR,
    }
    write_benchmark(
        folder,
        Benchmark(
            queries,
            gallery,
            {query.id: tuple(by_label[YES][query.id]) for query in queries},
            {query.id: tuple(by_label[UNSURE][query.id]) for query in queries},
            facts,
        ),
    )
    run.finish(BENCHMARK, recipe, time.monotonic() - start, rows=len(queries), benchmark=facts)
    return folder


def _gallery(run: Run, config: Config, folder: Path) -> list[Picture]:
    """The pictures; with `pictures=copy` their bytes lie in tars beside the files, and the folder may be moved."""
    split = section_of(config).split
    wanted = set(gallery_ids(run))
    rows = [row for row in usable(run.read(IMAGES), split=split).to_pylist() if row["image_id"] in wanted]
    named = {row["image_id"]: row["name"] or row["image_id"] for row in rows}
    store = image_store(run.folder, config.data)
    if section_of(config).pictures == "copy":
        found = []
        for old in folder.glob(f"{PICTURES}-*.tar"):
            old.unlink()
        with ShardWriter(str(folder), PICTURES, config.data.shard_mb * 2**20, str(folder)) as shards:
            for row in rows:
                data = store.bytes(row["uri"], row["offset"], row["length"], row["sha256"])
                ref = shards.add(data, row["image_id"]).ref()
                identity = row["image_id"]
                found.append(Picture(identity, named[identity], ref.uri, ref.offset, ref.length, ref.sha256))
        return found
    return [
        Picture(
            row["image_id"],
            named[row["image_id"]],
            store.resolve(row["uri"]),
            row["offset"],
            row["length"],
            row["sha256"],
        )
        for row in rows
    ]
