"""The terms that training minimises, as small classes on features. Pure torch; every term computes in float32.

Over several workers each term's gradient, averaged by DDP, equals the single-process gradient on the global batch.
"""

from repair_ray.training.objectives.fine_grained import Candidates, FineGrained, negclip, own_negative_sums
from repair_ray.training.objectives.infonce import MAX_LOGIT_SCALE, InfoNCE, Known, clamp_logit_scale_, info_nce
from repair_ray.training.objectives.local_grid import LocalGrid, grid_sums
from repair_ray.training.objectives.mixing import HardNegativeMixing, PositiveMixing, SimCSE
from repair_ray.training.objectives.soft import (
    Distill,
    IntraModal,
    SoftLabels,
    distillation,
    intra_modal_kl,
    soft_label_kl,
)

__all__ = [
    "MAX_LOGIT_SCALE",
    "Candidates",
    "Distill",
    "FineGrained",
    "HardNegativeMixing",
    "InfoNCE",
    "IntraModal",
    "Known",
    "LocalGrid",
    "PositiveMixing",
    "SimCSE",
    "SoftLabels",
    "clamp_logit_scale_",
    "distillation",
    "grid_sums",
    "info_nce",
    "intra_modal_kl",
    "negclip",
    "own_negative_sums",
    "soft_label_kl",
]
