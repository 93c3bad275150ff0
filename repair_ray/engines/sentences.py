"""A text encoder of sentence-transformers, as a teacher of the text tower: it sees no picture."""

from __future__ import annotations

import numpy as np
from PIL import Image

from repair_ray.engines.retriever import SENTENCES, RetrieverError, RetrieverSpec


class SentenceEncoder:
    """Embeds texts as float32 unit vectors `[N, D]`; the model is the name after `sentence-transformers:`, or a folder.

    Raises:
        RetrieverError: the package is not installed, or there is no such model.
    """

    def __init__(self, spec: RetrieverSpec, device: str = "cpu", batch_size: int = 128) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise RetrieverError(f"{spec.model} needs a package: pip install sentence-transformers") from None
        try:
            self.model = SentenceTransformer(spec.model.removeprefix(SENTENCES), device=device)
        except (OSError, ValueError) as error:
            raise RetrieverError(f"cannot load {spec.model}: {error}") from error
        self.batch_size = batch_size

    def encode_images(self, images: list[Image.Image]) -> np.ndarray:
        """No picture can be embedded: an empty array for an empty list.

        Raises:
            RetrieverError: there is a picture.
        """
        if images:
            raise RetrieverError("a sentence-transformers model sees no pictures")
        return np.zeros((0, 0), np.float32)

    def encode_texts(self, texts: list[str]) -> np.ndarray:
        """Embed texts."""
        if not texts:
            return np.zeros((0, 0), np.float32)
        found = self.model.encode(texts, batch_size=self.batch_size, normalize_embeddings=True, show_progress_bar=False)
        return np.asarray(found, np.float32)

    def truncated(self, text: str) -> bool:
        """Whether part of the text lies beyond the context."""
        limit = self.model.max_seq_length
        return limit is not None and len(self.model.tokenizer(text)["input_ids"]) > int(limit)
