"""Examples for the judge: failures of earlier rounds about which people have said whether they are some."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping
from itertools import chain, zip_longest

import pyarrow as pa
import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.config import Config, Criterion
from repair_ray.evaluation.votes import NO, YES, decide
from repair_ray.repair_review.edits import Row, accepted_edits, judged_of, read_answers
from repair_ray.run import Recipe, Run
from repair_ray.stages.cases import make_cases

# The question that is the judge's own, and its judgement for each answer.
VALID: Criterion = "valid"
JUDGEMENTS = {YES: "valid", NO: "benign_match"}


def make_examples(run: Run, config: Config, product: str, earlier: Mapping[int, str]) -> str:
    """Make the `examples` of a round's audit, `audit.examples` at most; returns the product.

    What people have said is taken once, when the round is first audited: its verdicts hold as more is said. Judgements
    and directions take turns, as far as there are some of each.

    Args:
        earlier: the `edits` product of each earlier round, by its number.
    """
    n, parents = config.audit.examples, tuple(earlier.values())
    made = run.manifest(product)
    if made is not None:
        run.ready(product, _recipe(n, made["recipe"]["settings"]["shown"], parents))
        return product
    start = time.monotonic()
    rows = [row for edits in earlier.values() for row in _judged(run, config, edits)]
    table = tables.to_table(_in_turns(rows)[:n], tables.EXAMPLES.schema)
    recipe = _recipe(n, tables.row_id(json.dumps(table.to_pylist(), sort_keys=True)), parents)
    if run.parents(product) is not None:
        run.redo(product)  # half-made, maybe of what people had said before
    run.ready(product, recipe)
    run.commit(product, recipe, tables.EXAMPLES, table, time.monotonic() - start, of=len(rows))
    return product


def _recipe(n: int, shown: str, parents: tuple[str, ...]) -> Recipe:
    return Recipe({"audit": {"examples": n}, "shown": shown}, parents)


def _judged(run: Run, config: Config, edits: str) -> list[Row]:
    """The failures of accepted edits on whose validity more than half of those who answered agree."""
    answers = read_answers(run)
    found: dict[str, tuple[str, str]] = {}
    for item, row in accepted_edits(run, edits).items():
        said = decide([own[item][VALID] for own in answers.values() if VALID in own.get(item, {})])
        if said in JUDGEMENTS:
            found[row["failure_id"]] = (item, JUDGEMENTS[said])
    failures, verdicts = (run.read(product) for product in judged_of(run, edits))
    wrong = {row["failure_id"]: row["mismatches"] for row in verdicts.to_pylist()}
    chosen = failures.filter(pc.is_in(failures["failure_id"], pa.array(sorted(found), pa.string()))).to_pylist()
    rows = []
    for case in make_cases(run, chosen, config.mining.split).to_pylist():
        item, judgement = found[case["failure_id"]]
        mismatches = (wrong.get(case["failure_id"]) or []) if judgement == JUDGEMENTS[YES] else []
        rows.append({**case, "item_id": item, "judgement": judgement, "mismatches": mismatches, "status": tables.OK})
    return rows


def _in_turns(rows: list[Row]) -> list[Row]:
    """Rows of each judgement and direction after each other, in an order that tells nothing."""
    kinds: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: str(row["item_id"])):
        kinds[row["judgement"], row["direction"]].append(row)
    turns = zip_longest(*(kinds[kind] for kind in sorted(kinds)))
    return [row for row in chain.from_iterable(turns) if row is not None]
