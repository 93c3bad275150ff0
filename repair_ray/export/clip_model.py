"""An open_clip model as a `transformers.CLIPModel`: weights by its names, its config, processor and tokenizer files.

Written without transformers. What a CLIPModel computes is one architecture: two plain pre-norm transformers, a class
token, causal text that is read at its end token, and a linear projection of both. Anything else is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import open_clip
import torch
from open_clip.model import CLIP
from open_clip.tokenizer import SimpleTokenizer
from open_clip.transformer import QuickGELU, ResidualAttentionBlock, Transformer, VisionTransformer
from safetensors.torch import save_file
from torch import Tensor, nn

from repair_ray.engines.encoder import resolve_model
from repair_ray.engines.retriever import RetrieverError

# open_clip's words for its special tokens, and those of the same tokens in the Hugging Face vocabulary.
START, END = ("<start_of_text>", "<|startoftext|>"), ("<end_of_text>", "<|endoftext|>")
# PIL's numbers of resampling filters.
RESAMPLE = {"bicubic": 3, "bilinear": 2}


def write_clip_model(model: nn.Module, name: str, folder: Path) -> None:
    """Write what `CLIPModel.from_pretrained` and `CLIPProcessor.from_pretrained` read.

    Args:
        model: an open_clip model. name: the config's name for it, which tells its tokenizer.

    Raises:
        RetrieverError: a CLIPModel cannot hold it; names every reason.
    """
    tokenizer = open_clip.get_tokenizer(resolve_model(name))
    reasons = [*_unlike(model), *_unlike_tokenizer(tokenizer, model)]
    if reasons:
        raise RetrieverError(
            f"retriever {name} cannot be a transformers CLIPModel: {'; '.join(reasons)}. Use --format open_clip"
        )
    clip: Any = model
    save_file(clip_state(clip), folder / "model.safetensors", metadata={"format": "pt"})
    _json(folder / "config.json", clip_config(clip, tokenizer))
    processor = image_processor(getattr(clip.visual, "preprocess_cfg", {}))
    _json(folder / "preprocessor_config.json", processor)
    _write_tokenizer(tokenizer, clip.context_length, folder)


def _unlike(model: nn.Module) -> Iterator[str]:
    """Why a CLIPModel does not compute what this model does."""
    if type(model) is not CLIP:
        yield f"it is open_clip's {type(model).__name__}, whose text tower is another"
        return
    visual: Any = model.visual
    if not isinstance(visual, VisionTransformer):
        yield f"its image tower is {type(visual).__name__}, not a plain vision transformer"
        return
    if visual.attn_pool is not None or visual.pool_type != "tok":
        yield "its image tower does not read the class token (pooling)"
    if isinstance(visual.ln_pre, nn.Identity):
        yield "its image tower has no first normalisation (no_ln_pre)"
    if len({*visual.image_size}) != 1 or len({*visual.patch_size}) != 1:
        yield "its pictures or patches are not square"
    if visual.proj is None:
        yield "its image tower has no projection"
    for tower, transformer in (("image", visual.transformer), ("text", model.transformer)):
        yield from (f"its {tower} tower's {what}" for what in _unlike_blocks(transformer))
    if not isinstance(model.text_projection, nn.Parameter):
        yield "its text projection is none, or has a bias"
    if model.text_pool_type != "argmax":
        yield f"its text is not read at the end token (text pooling {model.text_pool_type!r})"
    if model.attn_mask is None:
        yield "its text attention is not causal"
    if model.logit_bias is not None:
        yield "it has a logit bias (sigmoid loss)"
    mode = getattr(visual, "preprocess_cfg", {}).get("resize_mode", "shortest")
    if mode not in ("shortest", "squash"):
        yield f"its pictures are prepared with resize_mode {mode!r}"


def _unlike_blocks(transformer: Transformer) -> Iterator[str]:
    blocks = list(transformer.resblocks)
    if not all(type(block) is ResidualAttentionBlock for block in blocks):
        yield "blocks have normalisations or scales of their own"
    elif not all(isinstance(block.ls_1, nn.Identity) for block in blocks):
        yield "blocks have layer scales (ls_init_value)"
    elif not all(_activation(block) for block in blocks):
        yield "activation is neither GELU nor QuickGELU"


def _unlike_tokenizer(tokenizer: Any, model: nn.Module) -> Iterator[str]:
    if type(tokenizer) is not SimpleTokenizer or len(tokenizer.all_special_ids) != 2:
        yield f"its tokenizer is {type(tokenizer).__name__} with another vocabulary than CLIP's"
    elif tokenizer.reduction_fn is not None or tokenizer.clean_fn("A, b") != "a, b":
        yield "its tokenizer cleans or shortens texts in its own way"
    elif model.vocab_size < tokenizer.vocab_size:
        yield f"its vocabulary of {model.vocab_size} is smaller than CLIP's {tokenizer.vocab_size}"


def _activation(block: Any) -> str | None:
    """transformers' name of a block's activation; None where it has none that is the same."""
    gelu = block.mlp.gelu
    if isinstance(gelu, QuickGELU):
        return "quick_gelu"
    return "gelu" if type(gelu) is nn.GELU and gelu.approximate == "none" else None


def clip_state(model: Any) -> dict[str, Tensor]:
    """The weights in fp32 by the names that CLIPModel gives them."""
    visual = model.visual
    state = {
        "logit_scale": model.logit_scale.reshape(()),
        "visual_projection.weight": visual.proj.T,
        "text_projection.weight": model.text_projection.T,
        "vision_model.embeddings.class_embedding": visual.class_embedding,
        "vision_model.embeddings.patch_embedding.weight": visual.conv1.weight,
        "vision_model.embeddings.position_embedding.weight": visual.positional_embedding,
        "text_model.embeddings.token_embedding.weight": model.token_embedding.weight,
        "text_model.embeddings.position_embedding.weight": model.positional_embedding,
        # Misspelt as in transformers.
        **_affine("vision_model.pre_layrnorm", visual.ln_pre),
        **_affine("vision_model.post_layernorm", visual.ln_post),
        **_affine("text_model.final_layer_norm", model.ln_final),
    }
    for prefix, transformer in (("vision_model", visual.transformer), ("text_model", model.transformer)):
        for number, block in enumerate(transformer.resblocks):
            state |= _block(f"{prefix}.encoder.layers.{number}", block)
    return {key: value.detach().to("cpu", torch.float32).contiguous().clone() for key, value in state.items()}


def _block(prefix: str, block: Any) -> dict[str, Tensor]:
    found = {
        **_affine(f"{prefix}.layer_norm1", block.ln_1),
        **_affine(f"{prefix}.layer_norm2", block.ln_2),
        **_affine(f"{prefix}.mlp.fc1", block.mlp.c_fc),
        **_affine(f"{prefix}.mlp.fc2", block.mlp.c_proj),
        **_affine(f"{prefix}.self_attn.out_proj", block.attn.out_proj),
    }
    weights, biases = block.attn.in_proj_weight.chunk(3), block.attn.in_proj_bias.chunk(3)
    for part, weight, bias in zip("qkv", weights, biases, strict=True):
        found |= {f"{prefix}.self_attn.{part}_proj.weight": weight, f"{prefix}.self_attn.{part}_proj.bias": bias}
    return found


def _affine(prefix: str, layer: Any) -> dict[str, Tensor]:
    return {f"{prefix}.weight": layer.weight, f"{prefix}.bias": layer.bias}


def clip_config(model: Any, tokenizer: SimpleTokenizer) -> dict[str, Any]:
    """`config.json` of a CLIPModel that computes what the model does."""
    visual = model.visual
    width = int(visual.proj.shape[1])
    return {
        "architectures": ["CLIPModel"],
        "model_type": "clip",
        "dtype": "float32",
        "projection_dim": width,
        "logit_scale_init_value": float(model.logit_scale.detach().reshape(())),
        "vision_config": {
            "model_type": "clip_vision_model",
            "image_size": int(visual.image_size[0]),
            "patch_size": int(visual.patch_size[0]),
            **_tower(visual.transformer, visual.ln_post.eps, width),
        },
        "text_config": {
            "model_type": "clip_text_model",
            "vocab_size": int(model.vocab_size),
            "max_position_embeddings": int(model.context_length),
            "bos_token_id": tokenizer.sot_token_id,
            # Not 2, which tells transformers to look for the highest token instead.
            "eos_token_id": tokenizer.eot_token_id,
            "pad_token_id": tokenizer.eot_token_id,
            **_tower(model.transformer, model.ln_final.eps, width),
        },
    }


def _tower(transformer: Any, eps: float, projection: int) -> dict[str, Any]:
    first = transformer.resblocks[0]
    return {
        "hidden_size": int(transformer.width),
        "intermediate_size": int(first.mlp.c_fc.out_features),
        "num_hidden_layers": len(transformer.resblocks),
        "num_attention_heads": int(first.attn.num_heads),
        "hidden_act": _activation(first),
        "layer_norm_eps": float(eps),
        "projection_dim": projection,
    }


def image_processor(preprocess: dict[str, Any]) -> dict[str, Any]:
    """`preprocessor_config.json` from open_clip's `preprocess_cfg` (modes `shortest` and `squash`)."""
    size = preprocess["size"]
    height, width = (size, size) if isinstance(size, int) else size
    box = {"height": height, "width": width}
    squash = preprocess.get("resize_mode") == "squash"
    return {
        "image_processor_type": "CLIPImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": box if squash else {"shortest_edge": height},
        "resample": RESAMPLE.get(preprocess.get("interpolation", ""), RESAMPLE["bicubic"]),
        "do_center_crop": not squash,
        "crop_size": box,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(preprocess["mean"]),
        "image_std": list(preprocess["std"]),
    }


def _write_tokenizer(tokenizer: SimpleTokenizer, context_length: int, folder: Path) -> None:
    """open_clip's vocabulary is CLIP's, under other names of the two special tokens."""
    names = dict((START, END))
    vocabulary = {names.get(token, token): number for token, number in tokenizer.encoder.items()}
    merges = sorted(tokenizer.bpe_ranks, key=tokenizer.bpe_ranks.__getitem__)
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    special = {"bos_token": START[1], "eos_token": END[1], "unk_token": END[1], "pad_token": END[1]}
    _json(folder / "special_tokens_map.json", special)
    _json(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "CLIPTokenizer", "model_max_length": context_length, "do_lower_case": True, **special},
    )


def _json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False), encoding="utf-8")
