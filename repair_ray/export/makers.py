"""Who made the edits of a run, as its config tells: what stands beside each synthetic caption and picture."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repair_ray import __version__, tables
from repair_ray.config import Config
from repair_ray.engines.pipelines import PIPELINES
from repair_ray.engines.provenance import RULES_TYPE, SOURCE_TYPE
from repair_ray.engines.recorded import EDITS
from repair_ray.engines.tasks import task

FACTS = ("editor", "model", "instructed_by", "prompt_version", "seed", "digital_source_type", "tool")


@dataclass(frozen=True)
class Maker:
    """Who edits in one direction.

    `instructed_by` is the language model that said what to change, `prompt_version` that of its question (None: rules,
    which need no prompt). `seed` is the language model's (`i2t`), or the run's, which each picture's comes from.
    """

    editor: str
    model: str | None
    instructed_by: str
    prompt_version: str | None
    seed: int

    def facts(self, edit: dict[str, Any] | None) -> dict[str, Any]:
        """What is told of an edit (a row of `edits`); all None where a counterpart stands in for one."""
        if edit is None:
            return dict.fromkeys(FACTS)
        seed = self.seed
        if edit["direction"] == "t2i":
            seed = tables.edit_seed(seed, edit["failure_id"], _number(edit))
        made_by = (self.editor, self.model, self.instructed_by, self.prompt_version)
        kind = SOURCE_TYPE if self.model else RULES_TYPE
        return dict(zip(FACTS, (*made_by, seed, kind, f"repair_ray {__version__}"), strict=True))


def maker_of(config: Config, direction: str) -> Maker:
    """Who makes the edits of a direction."""
    language = config.edit.language or config.language
    by_rules = not language.asks
    instructed_by = language.backend if by_rules else _public(language.model or language.backend)
    version = None if by_rules else task(EDITS[direction]).version
    if direction == "i2t":
        model = None if by_rules else instructed_by
        return Maker(language.backend, model, instructed_by, version, language.seed)
    editor = config.edit.image_editor
    known = PIPELINES[editor].model if editor in PIPELINES else None
    model = _public(config.edit.diffusion.model or known) if known else None
    return Maker(editor, model, instructed_by, version, config.seed)


def _number(edit: dict[str, Any]) -> int:
    """Which of its candidates an edited picture is."""
    place = (edit["uri"], edit["offset"])
    return next(n for n, made in enumerate(edit["candidates"]) if (made["uri"], made["offset"]) == place)


def _public(model: str) -> str:
    """A model's name; of a folder on this machine only its last part."""
    return Path(model).name if os.path.isabs(model) else model
