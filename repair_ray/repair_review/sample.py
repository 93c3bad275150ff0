"""The sample of a round's edits that everybody reviews."""

from __future__ import annotations

import time

from filelock import FileLock

from repair_ray import tables
from repair_ray.evaluation.labels import draw_strata
from repair_ray.repair_review.edits import REVIEW, Row, accepted_edits, edits_of, error_types_of
from repair_ray.run import Recipe, Run, RunError
from repair_ray.stages.products import round_place

SIZE, SEED = 200, 0
# The error type of an edit whose failure the judge gave none.
UNTYPED = "none"


def sample_product(number: int) -> str:
    """The product that holds a round's sample."""
    return f"{REVIEW}/{round_place(number)}"


def sample_of(run: Run, number: int, n: int | None = None, seed: int | None = None) -> list[Row]:
    """The rows of a round's sample in their order; drawn first where there is none.

    A random sample of `n` accepted edits (200 where unset; all, where there are fewer), in proportion to each direction
    and error type (the first that the judge named), each at least once.

    Raises:
        RunError: no accepted edit, or the sample that is there is of another `n` or seed, or of edits that were made
            anew since.
    """
    product, edits = sample_product(number), edits_of(number)
    run.path(REVIEW).mkdir(parents=True, exist_ok=True)
    with FileLock(run.path(REVIEW) / ".sample.lock"):
        made = run.manifest(product)
        if made is None:
            _draw(run, product, edits, SIZE if n is None else n, SEED if seed is None else seed)
        elif made["recipe"]["parents"][edits] != (run.manifest(edits) or {}).get("fingerprint"):
            raise RunError(f"{product} is a sample of edits that were made anew since: remove {run.path(product)}")
    settings = (run.manifest(product) or {})["recipe"]["settings"]
    asked = {name: value for name, value in (("n", n), ("seed", seed)) if value is not None}
    if any(settings[name] != value for name, value in asked.items()):
        raise RunError(
            f"{product} in {run.folder} is a sample of {settings['n']} edits (seed {settings['seed']}), and annotators "
            f"must see the same one: leave --sample and --seed out, or remove {run.path(product)}; answers are kept"
        )
    return sorted(run.read(product).to_pylist(), key=lambda row: row["place"])


def _draw(run: Run, product: str, edits: str, n: int, seed: int) -> None:
    start = time.monotonic()
    accepted, types = accepted_edits(run, edits), error_types_of(run, edits)
    if not accepted:
        reasons = (run.manifest(edits) or {}).get("reasons") or {}
        why = "; ".join(f"{count} x {reason}" for reason, count in list(reasons.items())[:5])
        raise RunError(f"{edits} in {run.folder} holds no accepted edit to review{f' ({why})' if why else ''}")
    strata = [
        (item, (row["direction"], next(iter(types.get(row["failure_id"], ())), UNTYPED)))
        for item, row in accepted.items()
    ]
    rows: list[Row] = [
        {
            "item_id": item,
            **{name: accepted[item][name] for name in ("failure_id", "direction")},
            "place": place,
            "error_types": types.get(accepted[item]["failure_id"], []),
            "status": tables.OK,
        }
        for place, item in enumerate(draw_strata(strata, n, seed))
    ]
    recipe = Recipe({"n": n, "seed": seed}, (edits,))
    run.ready(product, recipe)
    table = tables.to_table(rows, tables.REVIEW_SAMPLE.schema)
    run.commit(product, recipe, tables.REVIEW_SAMPLE, table, time.monotonic() - start, of=len(accepted))
