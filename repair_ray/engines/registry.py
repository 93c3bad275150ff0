"""Engines by their names in the config: those that are built in, and those that other packages add."""

from __future__ import annotations

from typing import Any

from repair_ray.config import DiffusionConfig, LanguageConfig
from repair_ray.engines.editors import ImageEditor, Read
from repair_ray.engines.heuristic import HeuristicLanguage
from repair_ray.engines.judges import PluggedJudge
from repair_ray.engines.language import LanguageBackend
from repair_ray.engines.strategies import Strategy
from repair_ray.plugins import EDITORS, JUDGES, STRATEGIES, load, read_settings


def language_backend(config: LanguageConfig) -> LanguageBackend | None:
    """The backend that answers by itself; None where a model is asked first, and its answers are read."""
    if config.asks:
        return None
    if config.backend == "heuristic":
        return HeuristicLanguage(config.max_changes)
    settings = read_settings(JUDGES, config.backend, config.backend_settings)
    return PluggedJudge(config.backend, load(JUDGES, config.backend)(settings))


def image_editor(
    name: str, diffusion: DiffusionConfig, read: Read, device: str = "cpu", settings: dict[str, Any] | None = None
) -> ImageEditor | None:
    """The image editor of that name; None for `none`. Raises ValueError when its weights cannot be had.

    `read` decodes the source pictures, so that an editor sees the pixels that every other stage of the run sees.
    `settings` are those of an editor of another package.
    """
    if name == "none":
        return None
    if name == "scene":
        # The demo's editor is imported only where it is asked for: a production run never loads the world.
        from repair_ray.world.editor import SceneEditor

        return SceneEditor()
    if name not in EDITORS.builtin:
        made: ImageEditor = load(EDITORS, name)(read_settings(EDITORS, name, settings or {}), read=read, device=device)
        return made
    from repair_ray.engines.diffusion import DiffusersEditor

    return DiffusersEditor(name, diffusion, read, device)


def strategy(name: str, settings: dict[str, Any]) -> Strategy:
    """The strategy of another package, by its name."""
    made: Strategy = load(STRATEGIES, name)(read_settings(STRATEGIES, name, settings))
    return made
