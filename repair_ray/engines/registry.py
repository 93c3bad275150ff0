"""Engines by their names in the config."""

from __future__ import annotations

from repair_ray.config import LanguageConfig
from repair_ray.engines.editors import ImageEditor
from repair_ray.engines.heuristic import HeuristicLanguage
from repair_ray.engines.language import LanguageBackend


def language_backend(config: LanguageConfig) -> LanguageBackend:
    """The language backend that a config names. Raises ValueError for an unknown one."""
    if config.backend == "heuristic":
        return HeuristicLanguage(config.max_changes)
    raise ValueError(f"unknown language.backend {config.backend!r}; known: heuristic")


def image_editor(name: str) -> ImageEditor | None:
    """The image editor of that name; None for `none`. Raises ValueError for an unknown one."""
    if name == "none":
        return None
    if name == "scene":
        # The demo's editor is imported only where it is asked for: a production run never loads the world.
        from repair_ray.world.editor import SceneEditor

        return SceneEditor()
    raise ValueError(f"unknown edit.image_editor {name!r}; known: scene, none")
