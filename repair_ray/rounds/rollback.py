"""Take a run back to the end of one of its rounds."""

from __future__ import annotations

import time
from pathlib import Path

from repair_ray.run import Run, RunError
from repair_ray.stages.products import ROUND, round_place, rounds_made


def roll_back(run: Run, number: int) -> tuple[list[str], Path]:
    """Move all that was made after round `number`, and all that was made from it, out of the way.

    Round 0 is the base. Returns the products that were moved and the folder where they lie now.

    Raises:
        RunError: there is no such finished round, or nothing came after it; or another process works in the run.
    """
    if not run.folder.is_dir():
        raise RunError(f"there is no run at {run.folder}")
    with run.locked():
        made = rounds_made(run)
        if number and number not in made:
            known = ", ".join(map(str, made)) or "none"
            raise RunError(f"there is no finished round {number} in {run.folder} to keep; finished: {known}")

        def later(product: str) -> bool:
            place = product.partition("/")[0]
            if number == 0 and product in (f"{ROUND}/embeddings", f"{ROUND}/near_pictures"):
                return False  # the base's own
            return place.startswith("round-") and int(place.removeprefix("round-")) > number

        place = run.folder / ".rolled-back" / time.strftime("%Y%m%dT%H%M%S")
        moved = run.set_aside(later, place)
        if not moved:
            raise RunError(f"{run.folder} has nothing that comes after {round_place(number) if number else 'the base'}")
        return moved, place
