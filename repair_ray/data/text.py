"""When two captions count as the same text."""

from __future__ import annotations

import hashlib
import unicodedata

# Sentence marks only: "#", "*" or "%" at the end of a caption name something ("keycap: #").
TRAILING_MARKS = ".,;:!?。、"


def normal_text(caption: str) -> str:
    """NFKC, case-folded, white space collapsed, sentence marks at the end removed (unless nothing else is there)."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", caption).casefold())
    text = " ".join(folded.split())
    return text.rstrip(TRAILING_MARKS + " ") or text


def text_key(caption: str) -> str:
    """32 hex digits, equal for captions that differ only in case, width, spacing or closing marks (ours)."""
    return hashlib.sha256(normal_text(caption).encode("utf-8", "surrogatepass")).hexdigest()[:32]
