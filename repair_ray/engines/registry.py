"""Engines by their names in the config."""

from __future__ import annotations

from repair_ray.config import DiffusionConfig, LanguageConfig
from repair_ray.engines.editors import ImageEditor, Read
from repair_ray.engines.heuristic import HeuristicLanguage
from repair_ray.engines.language import LanguageBackend


def language_backend(config: LanguageConfig) -> LanguageBackend | None:
    """The backend that answers by itself; None where a model is asked first, and its answers are read."""
    return HeuristicLanguage(config.max_changes) if config.backend == "heuristic" else None


def image_editor(name: str, diffusion: DiffusionConfig, read: Read, device: str = "cpu") -> ImageEditor | None:
    """The image editor of that name; None for `none`. Raises ValueError when its weights cannot be had.

    `read` decodes the source pictures, so that an editor sees the pixels that every other stage of the run sees.
    """
    if name == "none":
        return None
    if name == "scene":
        # The demo's editor is imported only where it is asked for: a production run never loads the world.
        from repair_ray.world.editor import SceneEditor

        return SceneEditor()
    from repair_ray.engines.diffusion import DiffusersEditor

    return DiffusersEditor(name, diffusion, read, device)
