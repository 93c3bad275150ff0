"""How good the audit and the edits of a finished run are, without the truth: by people's labels, by the judge itself in
another order, by a reader without pictures. Reads tables and calls `evaluation`; only `order_consistency` asks a model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.config import Config, parse_config
from repair_ray.data.sheet_pictures import picture_place
from repair_ray.data.store import ImageStore
from repair_ray.evaluation.agreement import NO_VERDICT, Judged, against_labels, between_annotators, consensus
from repair_ray.evaluation.blind import BlindError, Pair, blind_baseline
from repair_ray.evaluation.labels import SIDES, Row, draw, read_labels, write_sheet
from repair_ray.run import Run, RunError, read_json

SHOWN = 5


def judged_products(run: Run, place: str) -> tuple[str, str]:
    """The failures and verdicts of a round: those that its edits were made from, where it has edits."""
    made_from = run.made_from(f"{place}/edits")
    return made_from.get("failures", f"{place}/failures"), made_from.get("verdicts", f"{place}/verdicts")


def audit_against_labels(run: Run, place: str, paths: Sequence[Path]) -> dict[str, Any]:
    """The verdicts of a round against label files; see `against_labels` for the measures.

    Failures on which annotators disagree are left out of them, and counted.

    Raises:
        RunError: no verdicts, or no label is of one of them. DataError: as `read_labels`.
    """
    labels = read_labels(paths)
    _, product = judged_products(run, place)
    columns = ["failure_id", "direction", "judgement", "confidence"]
    verdicts = {row["failure_id"]: row for row in run.read(product, columns).to_pylist()}
    unmatched = sorted(labels.failures - verdicts.keys())
    if len(unmatched) == len(labels.failures):
        example = next(iter(verdicts), "none")
        raise RunError(
            f"none of the {len(unmatched)} labelled failures is in {product} of {run.folder}, such as {unmatched[0]!r} "
            f"(ids there are such as {example!r}): labels of another run, or ids that a spreadsheet has changed"
        )
    joined = {
        annotator: {failure: label for failure, label in own.items() if failure in verdicts}
        for annotator, own in labels.by_annotator.items()
    }
    agreed, disputed = consensus(joined)
    rows = [
        Judged(row["direction"], row["judgement"] or NO_VERDICT, row["confidence"], agreed[failure])
        for failure, row in verdicts.items()
        if failure in agreed
    ]
    return {
        "verdicts": product,
        "files": [str(path) for path in paths],
        "annotators": {annotator: len(own) for annotator, own in labels.by_annotator.items()},
        "labelled": len(labels.failures),
        "joined": len(labels.failures) - len(unmatched),
        "unmatched": {"n": len(unmatched), "such_as": unmatched[:SHOWN]},
        "unlabelled_rows": labels.unlabelled,
        "disputed": len(disputed),
        "between_annotators": between_annotators(joined),
        **against_labels(rows),
    }


def label_sheet(run: Run, place: str, out: Path, n: int, seed: int) -> int:
    """Write a sheet of failures to label, without what the judge said; returns how many there are in it.

    Pictures that lie inside shards are copied into a folder beside the sheet (`<name>_images`).

    Raises:
        RunError: the round has no verdicts. DataError: the sheet exists already.
    """
    failures, verdicts = judged_products(run, place)
    config = run_config_of(run)
    chosen = draw(run.read(verdicts, ["failure_id", "direction", "judgement"]).to_pylist(), n, seed)
    if not chosen:
        raise RunError(f"{verdicts} in {run.folder} is empty: there is nothing to label")
    # Only here: both come with Ray, which takes seconds to import.
    from repair_ray.data.access import image_store
    from repair_ray.stages.cases import make_cases

    wanted = set(chosen)
    rows = [row for row in run.read(failures).to_pylist() if row["failure_id"] in wanted]
    cases = {row["failure_id"]: row for row in make_cases(run, rows, config.mining.split).to_pylist()}
    store = image_store(run.folder, config.data)
    folder = out.with_name(f"{out.stem}_images")
    write_sheet(out, [_with_images(cases[failure], store, folder) for failure in chosen])
    return len(chosen)


def blind(run: Run, place: str, seed: int) -> dict[str, Any]:
    """`blind_baseline` of the accepted edited captions of a round.

    Raises:
        RunError: no edits, or too few to tell.
    """
    product = f"{place}/edits"
    edits = run.read(product)
    accepted = pc.and_(pc.equal(edits["status"], tables.OK), pc.equal(edits["kind"], tables.EDITED))
    rows = edits.filter(pc.and_(accepted, pc.equal(edits["direction"], "i2t"))).to_pylist()
    captions = {r["caption_id"]: r for r in run.read("data/captions", ["caption_id", "text", "group_id"]).to_pylist()}
    groups = {r["image_id"]: r["group_id"] for r in run.read("data/images", ["image_id", "group_id"]).to_pylist()}
    pairs = []
    for row in rows:
        source = captions[row["candidate_id"]]
        about = frozenset({groups[row["query_id"]], source["group_id"]})
        pairs.append(Pair(row["text"], source["text"], about, groups[row["query_id"]]))
    try:
        return {"edits": product, **blind_baseline(pairs, seed)}
    except BlindError as error:
        raise RunError(f"{product} in {run.folder}, accepted edited captions: {error}") from None


def order_consistency(
    config: Config, place: str, n: int, seed: int, progress: Callable[[str, int, int], None] | None = None
) -> dict[str, Any]:
    """`stages.consistency.consistency` of a run that a config has made; starts Ray where a model is to be asked.

    Raises:
        RunError: no run, or as `consistency`.
    """
    from repair_ray.stages.audit import judge_of
    from repair_ray.stages.consistency import consistency
    from repair_ray.stages.graph import quiet, start_ray

    run = Run(config.run_dir)
    run_config_of(run)
    with run.locked():
        if judge_of(config).asks:
            start_ray()
        return consistency(run, config, *judged_products(run, place), n, seed, progress or quiet)


def run_config_of(run: Run) -> Config:
    """The config that a run was made with. Raises `RunError` where there is no run."""
    tree = read_json(run.folder / "config.json")
    if tree is None:
        raise RunError(f"there is no run at {run.folder}")
    return parse_config(tree, source=str(run.folder / "config.json"))


def _with_images(case: Row, store: ImageStore, folder: Path) -> Row:
    found = {}
    for side in SIDES:
        uri, offset, length, pixels = (case[f"{side}_{part}"] for part in ("uri", "offset", "length", "pixels"))
        found[f"{side}_image"] = picture_place(store, uri, offset, length, pixels[:16], folder)
    return {**case, **found}
