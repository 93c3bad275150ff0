"""Checks of a written caption that need no model: what was declared is what was changed, and little was changed."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections import Counter

from repair_ray.data.text import text_key
from repair_ray.engines.tasks.answers import CaptionDraft

_WORD = re.compile(r"\w+(?:['’-]\w+)*")


def caption_problem(draft: CaptionDraft, source: str, ground_truths: tuple[str, ...], max_changes: int) -> str | None:
    """Why an edited caption cannot be used, or None.

    `source` is the caption that it was edited from, `ground_truths` are the query's captions, `max_changes` the number
    of places that may differ.
    """
    text = draft.caption.strip()
    if not text:
        return "empty caption"
    if text_key(text) == text_key(source):
        return "equal to its source"
    if text_key(text) in {text_key(caption) for caption in ground_truths}:
        return "equal to a ground truth"
    if not _scripts(text) <= _scripts(" ".join((source, *ground_truths))):
        return "written in another script than its source"
    if "\n" in text or len(words(text)) > 2 * len(words(source)) + 4:
        return "longer than an edit of its source"
    spans = changed_spans(source, text)
    if len(spans) > max_changes:
        return f"changes more than {max_changes} places"
    if not _declared(spans, draft):
        return "changes what it does not declare"
    return None


def words(text: str) -> list[str]:
    """The words of a text, case-folded; marks are none."""
    return [match.group().casefold() for match in _WORD.finditer(text)]


def changed_spans(source: str, edited: str) -> list[tuple[list[str], list[str]]]:
    """Places where two texts differ by words: what stood there, what stands there now."""
    before, after = words(source), words(edited)
    matcher = difflib.SequenceMatcher(a=before, b=after, autojunk=False)
    return [(before[i:j], after[k:m]) for tag, i, j, k, m in matcher.get_opcodes() if tag != "equal"]


def _declared(spans: list[tuple[list[str], list[str]]], draft: CaptionDraft) -> bool:
    removed = Counter(word for change in draft.changes for word in words(change.before))
    added = Counter(word for change in draft.changes for word in words(change.after))
    # An article follows its noun, and is no change that anybody would declare.
    small = {"a", "an", "the"}
    gone = Counter(word for before, _ in spans for word in before if word not in small)
    new = Counter(word for _, after in spans for word in after if word not in small)
    return gone <= removed and new <= added


def _scripts(text: str) -> set[str]:
    """Writing systems of the letters in a text, by the first word of their Unicode names (LATIN, CJK, ...)."""
    return {unicodedata.name(letter, "UNKNOWN").split()[0] for letter in text if letter.isalpha()}
