"""Turns an image-text retriever's own mistakes into the training data that repairs them, on Ray.

`repair_ray.Config` reads settings, and `repair_ray.api` does what the command line does. Importing the package imports
neither torch nor Ray; what needs them imports them when it is called.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from repair_ray import api
    from repair_ray.config import Config, ConfigError

__version__ = "0.1.0"
__all__ = ["Config", "ConfigError", "__version__", "api"]


def __getattr__(name: str) -> Any:
    if name in ("Config", "ConfigError"):
        return getattr(import_module("repair_ray.config"), name)
    if name == "api":
        return import_module("repair_ray.api")
    raise AttributeError(f"module 'repair_ray' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
