"""Order swap: does the judge say the same when both items of a failure are shown in the other order?

After the order swaps with which SugarCrepe's evaluation of GPT-4V tells position bias. Answers go through the store of
all answers, so asking again costs nothing.
"""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pyarrow as pa

from repair_ray.config import Config
from repair_ray.engines.recorded import AUDIT_SWAPPED
from repair_ray.evaluation.agreement import DIRECTIONS, agreement, flips
from repair_ray.run import Run, RunError
from repair_ray.stages.audit import judge, judge_of, shown_examples, verdicts_recipe
from repair_ray.stages.cases import make_cases
from repair_ray.stages.graph import Progress, quiet

NO_ORDER = "the {backend} backend answers by itself: it is shown no prompt, so there is no order to swap"


def consistency(
    run: Run,
    config: Config,
    failures: str,
    verdicts: str,
    n: int = 100,
    seed: int = 0,
    progress: Progress = quiet,
) -> dict[str, Any]:
    """Ask the judge about `n` failures once more, in the other order, and compare with its verdicts.

    The failures are drawn from those that have a judgement, the same for a seed. The second verdicts are a product of
    the run. Failures without an answer in the other order are counted and left out.

    Returns:
        `agreement` and `flips` in `total` and by direction; or `skipped`, a reason, where nobody can be asked.

    Raises:
        RunError: no verdicts, verdicts of another judge than the config's, or too many questions without an answer.
    """
    language = judge_of(config)
    if not language.asks:
        return {"skipped": NO_ORDER.format(backend=language.backend)}
    if run.manifest(verdicts) is None:
        raise RunError(f"{verdicts} does not exist yet in {run.folder}; make it with repair-ray run first")
    answers = f"{verdicts}_answers"
    if run.manifest(answers) is None:
        raise RunError(f"{verdicts} in {run.folder} come from no model, and the config's judge is {language.model}")
    # Refuses verdicts of another model, or of other settings, and names them.
    examples = shown_examples(run, verdicts)
    run.ready(verdicts, verdicts_recipe(language, (failures, *([examples] if examples else ())), (answers,)))
    columns = ["failure_id", "direction", "judgement"]
    first = {row["failure_id"]: row for row in run.read(verdicts, columns).to_pylist() if row["judgement"]}
    chosen = set(random.Random(seed).sample(sorted(first), min(n, len(first))))
    if not chosen:
        raise RunError(f"{verdicts} in {run.folder} holds no judgement: there is nothing to ask once more")

    @cache
    def cases() -> pa.Table:
        rows = run.read(failures).to_pylist()
        return make_cases(run, [row for row in rows if row["failure_id"] in chosen], config.mining.split)

    # What is asked follows from the parents and from the name, so that it needs no other settings.
    product = f"consistency/{n}-{seed}/{verdicts}"
    judge(run, config, product, cases, AUDIT_SWAPPED, (failures, verdicts), progress, examples)
    pairs = [
        (row["direction"], first[row["failure_id"]]["judgement"], row["judgement"])
        for row in run.read(product, columns).to_pylist()
        if row["judgement"]
    ]
    found: dict[str, Any] = {"verdicts": verdicts, "swapped": product, "n": len(chosen)}
    found["no_answer"] = len(chosen) - len(pairs)
    for part in ("total", *DIRECTIONS):
        before, after = ([pair[k] for pair in pairs if part in ("total", pair[0])] for k in (1, 2))
        found[part] = {**agreement(before, after), **flips(before, after)}
    return found
