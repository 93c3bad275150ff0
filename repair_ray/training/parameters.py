"""Which weights train, and at which rate: frozen towers, low-rank changes, decay of the rate by layer."""

from __future__ import annotations

import re
from typing import Any

from torch import Tensor, nn

from repair_ray.config import LoraConfig, TrainingConfig
from repair_ray.run import RunError

# Parameters that no loss on features of both towers reaches: SigLIP's bias, CoCa's caption decoder.
UNREACHED = ("logit_bias", "text_decoder.")
IMAGE_TOWER = "visual."
# What comes before the blocks of a tower, by the names of open_clip's, timm's and transformers' towers.
_FIRST = ("embed", "conv1", "ln_pre", "cls_token", "pos_", "stem")
_BLOCK = re.compile(r"\.(?:resblocks|blocks|layers?|stages)\.(\d+)\.")


def prepare(model: nn.Module, config: TrainingConfig) -> nn.Module:
    """Freeze what stays as it is, and put low-rank changes in, as the config says; the model is changed in place.

    Raises:
        RunError: nothing is left to train, or `training.lora` without the package that it needs.
    """
    for name, parameter in model.named_parameters():
        if name.startswith(UNREACHED):
            parameter.requires_grad_(False)  # DDP waits for a gradient of each parameter that wants one
    if config.lora is not None:
        _add_lora(model, config.lora)
    network: Any = model
    if "image" in config.freeze:
        network.lock_image_tower()
        network.visual.eval()  # its running statistics stay, too
    if "text" in config.freeze:
        _freeze_text(model)
    if not any(p.requires_grad for name, p in model.named_parameters() if name != "logit_scale"):
        raise RunError("training.freeze names both towers: nothing is left to train")
    return model


def _freeze_text(model: nn.Module) -> None:
    # By name, as open_clip's own lock leaves the embeddings of some towers to train.
    for name, parameter in model.named_parameters():
        if not name.startswith(IMAGE_TOWER) and name != "logit_scale":
            parameter.requires_grad_(False)


def parameter_groups(
    model: nn.Module, weight_decay: float, lr: float = 1.0, layer_decay: float | None = None
) -> list[dict[str, Any]]:
    """AdamW's groups: gains, biases and the logit scale go without weight decay.

    With `layer_decay` a group for each depth: a block's rate is `layer_decay` times that of the block above it, the
    embeddings' below all, the projections' and the logit scale's the full `lr`. `scale` is a group's share of `lr`.
    """
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    depths = _depths(model)
    groups: dict[tuple[float, float], list[Tensor]] = {}
    for name, parameter in named:
        share = 1.0 if layer_decay is None else layer_decay ** depths[name]
        decay = weight_decay if parameter.ndim >= 2 else 0.0
        groups.setdefault((share, decay), []).append(parameter)
    return [
        {"params": parameters, "weight_decay": decay, "lr": lr * share, "scale": share}
        for (share, decay), parameters in groups.items()
    ]


def _depths(model: nn.Module) -> dict[str, int]:
    """How many blocks each parameter lies below its tower's end: 0 for what follows the last block."""
    towers: dict[bool, int] = {}
    found: dict[str, tuple[bool, int | None]] = {}
    for name, _ in model.named_parameters():
        tower, block = name.startswith(IMAGE_TOWER), _BLOCK.search(name)
        number = int(block.group(1)) if block else None
        found[name] = (tower, number)
        if number is not None:
            towers[tower] = max(towers.get(tower, 0), number + 1)
    depths = {}
    for name, (tower, number) in found.items():
        blocks = towers.get(tower, 0)
        first = any(part in name for part in _FIRST)
        depths[name] = blocks - number if number is not None else blocks + 1 if first else 0
    return depths


def _add_lora(model: nn.Module, lora: LoraConfig) -> None:
    try:
        from peft import LoraConfig as Settings
        from peft import inject_adapter_in_model
    except ImportError:
        raise RunError("training.lora needs the package peft: pip install repair-ray[lora]") from None
    layers = [
        name
        for name, module in model.named_modules()
        # The projections inside an attention module belong to it.
        if isinstance(module, nn.MultiheadAttention)
        or (isinstance(module, nn.Linear) and not name.endswith("attn.out_proj"))
    ]
    settings = Settings(r=lora.rank, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=layers)
    inject_adapter_in_model(settings, model)
    # peft freezes all that is not its own; the logit scale goes on.
    for name, parameter in model.named_parameters():
        if name == "logit_scale":
            parameter.requires_grad_(True)


def merged_state(model: nn.Module) -> dict[str, Tensor]:
    """The model's weights as open_clip names them, low-rank changes merged in; the model is left as it was."""
    if not any("lora_" in name for name, _ in model.named_parameters()):
        return dict(model.state_dict())
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    for layer in layers:
        if not layer.merged:  # a projection inside an attention goes with it
            layer.merge()
    state = {
        name.replace("base_layer.", ""): value.clone()
        for name, value in model.state_dict().items()
        if "lora_" not in name
    }
    for layer in layers:
        if layer.merged:
            layer.unmerge()
    return state
