"""A FLUX.2 klein 4B editor of full size with random weights, called as `DiffusersEditor` calls its pipeline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image

from benchmarks.gpu_engines.meter import Meter, Row, count_flops

PROMPT = "make the red square a blue circle"
CHAT = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"


class Unavailable(Exception):
    """The part cannot be measured here; the message says what is missing."""


@dataclass(frozen=True)
class Shape:
    """Sizes of the pipeline's parts, where they differ from the defaults of their classes."""

    name: str
    denoiser: dict[str, Any]
    text: dict[str, Any]
    vae: dict[str, Any]
    layers: tuple[int, ...]  # of the text encoder, whose outputs the denoiser is given
    tokens: int  # that a prompt is padded to
    sides: tuple[int, ...]  # of square pictures, in pixels
    repeats: int


# Denoiser: Klein4BParams of github.com/black-forest-labs/flux2 (hidden 3072, 5 double and 20 single blocks, context
# 3 x 2560). Text encoder: config.json of Qwen/Qwen3-4B. VAE: the defaults of AutoencoderKLFlux2.
KLEIN_4B = Shape(
    name="FLUX.2 klein 4B",
    denoiser={
        "num_layers": 5,
        "num_single_layers": 20,
        "num_attention_heads": 24,
        "joint_attention_dim": 7680,
        "guidance_embeds": False,
    },
    text={
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    },
    vae={},
    layers=(9, 18, 27),
    tokens=512,
    sides=(512, 1024),
    repeats=5,
)
TINY = Shape(
    name="FLUX.2 klein of tiny parts",
    denoiser={
        "in_channels": 4,
        "num_layers": 1,
        "num_single_layers": 1,
        "attention_head_dim": 16,
        "num_attention_heads": 2,
        "joint_attention_dim": 16,
        "axes_dims_rope": [4, 4, 4, 4],
        "guidance_embeds": False,
    },
    text={
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": 600,
    },
    vae={
        "down_block_types": ("DownEncoderBlock2D",),
        "up_block_types": ("UpDecoderBlock2D",),
        "block_out_channels": (4,),
        "layers_per_block": 1,
        "latent_channels": 1,
        "norm_num_groups": 1,
        "use_quant_conv": False,
        "use_post_quant_conv": False,
    },
    layers=(1,),
    tokens=32,
    sides=(64,),
    repeats=2,
)


def rows(meter: Meter) -> Iterator[Row]:
    """Seconds an edited picture, and of two parts of an edit: one step of the denoiser, and the prompt."""
    shape, pipeline = build(meter)
    for side in shape.sides:
        edit = _edit(pipeline, shape, side)
        yield _row(meter, shape, "edit of one picture", edit, "images", {"pixels": [side, side]})
        step, tokens = _denoiser_step(pipeline, edit)
        yield _row(meter, shape, "one step of the denoiser", step, "steps", {"pixels": [side, side], "tokens": tokens})
    yield _row(meter, shape, "the prompt", _prompt(pipeline, shape), "prompts", {"tokens": shape.tokens})


def compiled_rows(meter: Meter) -> Iterator[Row]:
    """Seconds an edited picture with the denoiser compiled, as `edit.diffusion.compile` does it."""
    shape, pipeline = build(meter)
    edits = {side: _edit(pipeline, shape, side) for side in shape.sides}
    flops = {side: count_flops(edit) for side, edit in edits.items()}
    pipeline.transformer = torch.compile(pipeline.transformer, dynamic=True)
    for side, edit in edits.items():
        begun = time.perf_counter()
        edit()
        first = time.perf_counter() - begun
        row = _row(meter, shape, "edit of one picture, compiled", edit, "images", {"pixels": [side, side]}, flops[side])
        row["facts"] |= {"first_call_seconds": first}
        yield row


def build(meter: Meter) -> tuple[Shape, Any]:
    """The pipeline on the meter's device, with random bf16 weights. Raises `Unavailable` without diffusers."""
    try:
        from diffusers import (
            AutoencoderKLFlux2,
            FlowMatchEulerDiscreteScheduler,
            Flux2KleinPipeline,
            Flux2Transformer2DModel,
        )
        from transformers import Qwen3Config, Qwen3ForCausalLM
    except ImportError as error:
        raise Unavailable(f"{error}; pip install -e .[diffusers]") from None
    shape = TINY if meter.quick else KLEIN_4B
    torch.manual_seed(0)
    # Drawn where they are used: on the CPU, the random weights alone would take minutes.
    with torch.device(meter.device):
        parts = {
            "transformer": Flux2Transformer2DModel(**shape.denoiser),
            "text_encoder": Qwen3ForCausalLM(Qwen3Config(**shape.text)),
            "vae": AutoencoderKLFlux2(**shape.vae),
        }
    parts = {name: part.bfloat16().eval().requires_grad_(False) for name, part in parts.items()}
    pipeline = Flux2KleinPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(), tokenizer=_tokenizer(), is_distilled=True, **parts
    )
    pipeline.set_progress_bar_config(disable=True)
    return shape, pipeline.to(meter.device)


def _tokenizer() -> Any:
    """A tokenizer of bytes. The prompt is padded to a fixed length, so that its time does not hang on its tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = pre_tokenizers.ByteLevel.alphabet()
    special = ["<pad>", "<|im_start|>", "<|im_end|>"]
    made.train_from_iterator([PROMPT], trainers.BpeTrainer(special_tokens=special, initial_alphabet=letters))
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", chat_template=CHAT)


def _edit(pipeline: Any, shape: Shape, side: int) -> Callable[[], Any]:
    from repair_ray.engines.diffusion import PIPELINES

    known = PIPELINES["flux2-klein"]
    pixels = np.random.default_rng(0).integers(0, 256, (side, side, 3), np.uint8)

    @torch.inference_mode()
    def edit() -> Any:
        return pipeline(
            image=Image.fromarray(pixels),
            prompt=PROMPT,
            num_inference_steps=known.steps,
            guidance_scale=known.guidance,
            generator=torch.Generator("cpu").manual_seed(0),
            output_type="np",
            max_sequence_length=shape.tokens,
            text_encoder_out_layers=shape.layers,
        ).images

    return edit


def _denoiser_step(pipeline: Any, edit: Callable[[], Any]) -> tuple[Callable[[], Any], int]:
    """The denoiser's last step of an edit, to be done again, and how many tokens it attends over."""
    seen: dict[str, Any] = {}
    hook = pipeline.transformer.register_forward_pre_hook(
        lambda module, positional, named: seen.update(named), with_kwargs=True
    )
    edit()
    hook.remove()
    tokens = seen["hidden_states"].shape[1] + seen["encoder_hidden_states"].shape[1]
    return torch.inference_mode()(lambda: pipeline.transformer(**seen)), tokens


def _prompt(pipeline: Any, shape: Shape) -> Callable[[], Any]:
    def encode() -> Any:
        return pipeline.encode_prompt(
            PROMPT,
            device=pipeline.device,
            max_sequence_length=shape.tokens,
            text_encoder_out_layers=shape.layers,
        )

    return torch.inference_mode()(encode)


def _row(
    meter: Meter,
    shape: Shape,
    name: str,
    call: Callable[[], Any],
    unit: str,
    shapes: dict[str, Any],
    flops: int | None = None,
) -> Row:
    return meter.row(
        f"{shape.name}, {name}",
        call,
        items=1,
        unit=unit,
        dtype="bf16",
        shapes=shapes,
        flops=flops,
        repeats=shape.repeats,
    )
