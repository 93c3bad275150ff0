"""Strategies of other packages: who writes the other side of a hard pair, as text, one case at a time (ours)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from repair_ray.engines.language import Case, Draft


class Strategy(Protocol):
    """Made as `Strategy(settings)`, once an actor. What it writes depends on the case and the seed alone.

    `works_on`, of the class: `failures` or `captions`.

    * `failures`: each failure that the audit lets through (with `selection.audit=false` each that was judged). A draft
      is a caption of the query's picture; the retriever selects among the drafts as it does among edits. Only failures
      of images (`i2t`) are asked about; those of captions (`t2i`) get the query's own picture.
    * `captions`: each caption of the training splits. A draft is a caption that is not true of the picture: a negative
      of that caption, for `objective.fine_grained`. The case is of `i2t`, the caption its `candidate_text`, and
      `query_captions` are all that is known of the picture.
    """

    works_on: Literal["failures", "captions"]

    def drafts(self, case: Case, seed: int) -> Sequence[Draft]:
        """Captions for a case, best first; what is raised becomes the reason of the case's row.

        Args:
            seed: 31 bits, from the run's seed and the row's id.
        """
        ...
