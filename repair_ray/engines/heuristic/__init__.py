"""A language backend without a model."""

from repair_ray.engines.heuristic.backend import HeuristicLanguage

__all__ = ["HeuristicLanguage"]
