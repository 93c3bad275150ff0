"""The main job: rounds of repair with their controls, what ends them, what they cost, and the way back."""

from repair_ray.rounds.job import run_config as run_config
