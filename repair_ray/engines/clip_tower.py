"""A small dual encoder on clip features: frames `[T, D]` on one side, texts on the other (ours).

Clips: a linear map of each frame, one transformer layer over them where asked for, and attention pooling over time.
Texts: the mean of learned embeddings of the lemmas, for glosses and small vocabularies, or an open_clip text tower.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from repair_ray.engines.retriever import RetrieverError, named_spec
from repair_ray.engines.words import Language, LanguageName, language

WEIGHTS = "model.safetensors"
ARCHITECTURE = "clip_model.json"
FIRST_SCALE = 1 / 0.07  # CLIP's
_UNKNOWN = 1


@dataclass(frozen=True)
class ClipArchitecture:
    """What a clip retriever is built from.

    `width` is D of the features, `embed` the joint space's; `layers` is 0 or 1. `text` is `words`, with `lemmas` as
    its vocabulary, or an open_clip model (`pretrained`: a tag or a checkpoint file), whose width is then the joint
    space's.
    """

    width: int
    embed: int
    layers: int
    heads: int
    text: str
    pretrained: str | None
    language: LanguageName
    lemmas: tuple[str, ...] = ()


class ClipTower(nn.Module):
    """Frames `[N, T, D]` with a mask to unit tokens `[N, T, E]` and unit clip features `[N, E]`."""

    def __init__(self, width: int, embed: int, layers: int, heads: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, embed)
        self.layer = (
            nn.TransformerEncoderLayer(embed, heads, 2 * embed, dropout=0.0, batch_first=True, norm_first=True)
            if layers
            else None
        )
        self.query = nn.Parameter(torch.zeros(embed))

    def forward(self, frames: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """`mask [N, T]` is True where there is a frame; each clip has at least one. What is not there changes nothing.

        Returns:
            Clip features, and tokens (without meaning where the mask is False).
        """
        tokens = self.project(frames)
        if self.layer is not None:
            tokens = self.layer(
                tokens + positions(tokens.shape[1], tokens.shape[2]).to(tokens), src_key_padding_mask=~mask
            )
        weights = (tokens @ self.query / math.sqrt(tokens.shape[-1])).masked_fill(~mask, -torch.inf).softmax(-1)
        # A weight of 0 would still make NaN of a token that is not finite.
        pooled = (weights[..., None] * tokens.masked_fill(~mask[..., None], 0)).sum(1)
        return F.normalize(pooled, dim=-1), F.normalize(tokens, dim=-1)


def positions(length: int, width: int) -> Tensor:
    """Sinusoidal positions `[length, width]`, scaled to a length of about one."""
    steps = torch.arange(length)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10_000) / width))
    both = torch.stack([steps.sin(), steps.cos()], dim=-1).flatten(1)[:, :width]
    return both / math.sqrt(width / 2)


class WordMean(nn.Module):
    """Texts as the normalised mean of embeddings of their lemmas; lemmas that training never saw share one."""

    def __init__(self, lemmas: Sequence[str], embed: int, words: Language) -> None:
        super().__init__()
        self._words = words
        self._place = {lemma: n for n, lemma in enumerate(lemmas, start=_UNKNOWN + 1)}
        self.embedding = nn.Embedding(len(lemmas) + _UNKNOWN + 1, embed, padding_idx=0)
        self._known: dict[str, list[int]] = {}

    def forward(self, texts: Sequence[str]) -> Tensor:
        """Unit features `[N, E]`."""
        ids = [torch.tensor(self._ids(text)) for text in texts]
        padded = nn.utils.rnn.pad_sequence(ids, batch_first=True).to(self.embedding.weight.device)
        return F.normalize(self.embedding(padded).sum(1), dim=-1)

    def _ids(self, text: str) -> list[int]:
        if text not in self._known:
            self._known[text] = [self._place.get(lemma, _UNKNOWN) for lemma in lemmas_of(text, self._words)]
        return self._known[text] or [_UNKNOWN]


def lemmas_of(text: str, words: Language) -> list[str]:
    """The lemmas of all words of a text, case-folded."""
    return [word.lemma.casefold() for word in words.words(text)]


class OpenClipText(nn.Module):
    """The text tower of an open_clip model."""

    def __init__(self, model: str, pretrained: str | None) -> None:
        super().__init__()
        from repair_ray.engines.encoder import Preprocess, build_model

        self.model = build_model(named_spec(model, pretrained))
        self._preprocess = Preprocess(self.model, model)
        cast(Any, self.model).visual = nn.Identity()
        for name, parameter in self.model.named_parameters():
            if name in ("logit_scale", "logit_bias"):
                parameter.requires_grad_(False)

    def forward(self, texts: Sequence[str]) -> Tensor:
        """Unit features `[N, E]`."""
        model: Any = self.model
        device = next(self.model.parameters()).device
        return cast(Tensor, model.encode_text(self._preprocess.tokens(list(texts)).to(device), normalize=True))


class ClipRetriever(nn.Module):
    """Both towers and the logit scale; features are unit vectors of one space."""

    def __init__(self, architecture: ClipArchitecture, seed: int = 0) -> None:
        """Weights are drawn from `seed`. Raises RetrieverError: unknown text model, or heads that do not divide."""
        super().__init__()
        torch.manual_seed(seed)
        words = language(architecture.language)
        embed = architecture.embed
        self.text: nn.Module
        if architecture.text == "words":
            self.text = WordMean(architecture.lemmas, embed, words)
        else:
            self.text = OpenClipText(architecture.text, architecture.pretrained)
            embed = len(self.text(["a"])[0])
        if architecture.layers and embed % architecture.heads:
            raise RetrieverError(f"tower.heads={architecture.heads} does not divide the joint width {embed}")
        self.architecture = architecture
        self.tower = ClipTower(architecture.width, embed, architecture.layers, architecture.heads)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(FIRST_SCALE)))

    def clips(self, features: Sequence[np.ndarray]) -> tuple[Tensor, Tensor, Tensor]:
        """Clips `[T_i, D]` to unit features `[N, E]`, unit tokens `[N, T, E]` and the mask `[N, T]` of those."""
        device = self.logit_scale.device
        lengths = torch.tensor([len(part) for part in features])
        frames = nn.utils.rnn.pad_sequence([torch.from_numpy(part) for part in features], batch_first=True).to(device)
        mask = (torch.arange(frames.shape[1])[None] < lengths[:, None]).to(device)
        return (*self.tower(frames, mask), mask)

    @torch.inference_mode()
    def encode_clips(self, features: Sequence[np.ndarray], batch_size: int = 256) -> np.ndarray:
        """float32 unit features `[N, E]`."""
        parts = [self.clips(features[n : n + batch_size])[0].cpu() for n in range(0, len(features), batch_size)]
        return torch.cat(parts).numpy()

    @torch.inference_mode()
    def encode_tokens(self, features: Sequence[np.ndarray], batch_size: int = 256) -> list[np.ndarray]:
        """float32 unit tokens `[T_i, E]` of each clip."""
        made: list[np.ndarray] = []
        for start in range(0, len(features), batch_size):
            part = features[start : start + batch_size]
            tokens = self.clips(part)[1].cpu().numpy()
            made += [found[: len(own)] for found, own in zip(tokens, part, strict=True)]
        return made

    @torch.inference_mode()
    def encode_texts(self, texts: list[str], batch_size: int = 1024) -> np.ndarray:
        """float32 unit features `[N, E]`."""
        parts = [self.text(texts[n : n + batch_size]).cpu() for n in range(0, len(texts), batch_size)]
        return torch.cat(parts).numpy()

    def save(self, folder: Path) -> None:
        """Write weights (safetensors) and architecture (JSON)."""
        folder.mkdir(parents=True, exist_ok=True)
        state = {name: value.detach().cpu().contiguous().clone() for name, value in self.state_dict().items()}
        save_file(state, folder / WEIGHTS)
        (folder / ARCHITECTURE).write_text(json.dumps(asdict(self.architecture), ensure_ascii=False), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> ClipRetriever:
        """Read what `save` wrote. Raises RetrieverError: there is none, or it is broken."""
        try:
            tree = json.loads((folder / ARCHITECTURE).read_text(encoding="utf-8"))
            # The weights are those of the folder, wherever they once started from.
            made = cls(ClipArchitecture(**{**tree, "lemmas": tuple(tree["lemmas"]), "pretrained": None}))
            made.load_state_dict(load_file(folder / WEIGHTS))
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
            raise RetrieverError(f"there is no clip retriever in {folder}: {error}") from None
        return made.eval()
