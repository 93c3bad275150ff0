"""Rewrites a caption word by word: replacements and deletions on its tokens, then articles made right (ours)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from repair_ray.engines.heuristic import lexicon as lex
from repair_ray.engines.heuristic.phrases import Parsed, Token

_ARTICLE = re.compile(r"\b(an?)(\s+)(\w+)", re.IGNORECASE)


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

    def insert_before(self, index: int, text: str) -> None:
        """Put words in front of a token, after what already stands there."""
        self.changes[index] = f"{text} {self.changes.get(index, self.parsed.tokens[index].text)}"

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
        for index, token in enumerate(tokens):
            gap = text[position : token.start]
            position = token.end
            word = self.changes.get(index, token.text)
            if word:
                out += gap + word
        out += text[position:]
        return _right_articles(_tidy(out, text)) if self.changes else text


def _tidy(out: str, source: str) -> str:
    out = re.sub(r"[ \t]{2,}", " ", out).strip()
    out = re.sub(r"^[\s,;:]+", "", out)
    out = re.sub(r"(?:\s*[,;:]|\s+\b(?:and|with|or)\b)+(?=\s*[.!?]?$)", "", out)
    return out[:1].upper() + out[1:] if source[:1].isupper() else out


def _right_articles(text: str) -> str:
    def fix(match: re.Match[str]) -> str:
        right = lex.article(match[3])
        return (right.capitalize() if match[1][0].isupper() else right) + match[2] + match[3]

    return _ARTICLE.sub(fix, text)


def changed_words(source: tuple[Token, ...], target: tuple[Token, ...]) -> int:
    """Word-level Levenshtein distance of two tokenized texts, case aside."""
    a, b = [t.lower for t in source], [t.lower for t in target]
    row = list(range(len(b) + 1))
    for i, word in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
    return row[-1]
