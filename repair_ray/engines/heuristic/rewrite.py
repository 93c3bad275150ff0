"""Rewrites a caption word by word: replacements and deletions on its tokens, then articles made right (ours)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from repair_ray.engines.heuristic import lexicon as lex
from repair_ray.engines.heuristic.phrases import Parsed, Token


@dataclass
class Rewrite:
    """Changes to the tokens of one caption: index -> new text, empty to leave the token out."""

    parsed: Parsed
    changes: dict[int, str] = field(default_factory=dict)

    def replace(self, index: int, text: str) -> None:
        """Put `text` in the place of a token, in the same case if the token begins a sentence."""
        token = self.parsed.tokens[index]
        if text.lower() == token.lower:
            return
        self.changes[index] = text[:1].upper() + text[1:] if token.text[:1].isupper() else text

    def delete(self, start: int, end: int) -> None:
        """Leave out tokens [start, end)."""
        self.changes.update(dict.fromkeys(range(start, end), ""))

    def replace_span(self, start: int, end: int, text: str) -> None:
        """Put `text` in the place of tokens [start, end)."""
        self.delete(start, end)
        self.changes[start] = text

    @property
    def size(self) -> int:
        """How many words are changed or left out."""
        return len(self.changes)

    def render(self) -> str:
        """The caption with the changes: other words, their order and the spaces between them stay."""
        text, tokens = self.parsed.text, self.parsed.tokens
        out, position = "", 0
        article = ""  # the word just written, where it is one
        touched = False  # whether it, or anything since, was changed
        for index, token in enumerate(tokens):
            gap = text[position : token.start]
            position = token.end
            word = self.changes.get(index, token.text)
            touched = touched or index in self.changes
            if not word:
                continue
            if article and touched and word[0].isalnum():
                out = out[: -len(article)] + _right_article(article, word)
            out += gap + word
            article = word if word.lower() in ("a", "an") else ""
            touched = index in self.changes
        out += text[position:]
        return _tidy(out, text) if self.changes else text


def _tidy(out: str, source: str) -> str:
    out = re.sub(r"[ \t]{2,}", " ", out).strip()
    out = re.sub(r"^[\s,;:]+", "", out)
    out = re.sub(r"(?:\s*[,;:]|\s+\b(?:and|with|or)\b)+(?=\s*[.!?]?$)", "", out)
    return out[:1].upper() + out[1:] if source[:1].isupper() else out


def _right_article(article: str, word: str) -> str:
    right = lex.article(word)
    return right.capitalize() if article[0].isupper() else right


def changed_words(source: tuple[Token, ...], target: tuple[Token, ...]) -> int:
    """Word-level Levenshtein distance of two tokenized texts, case aside."""
    a, b = [t.lower for t in source], [t.lower for t in target]
    row = list(range(len(b) + 1))
    for i, word in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
    return row[-1]
