"""Other words for the same caption: synonyms of its attributes, of its nouns and of its places (ours)."""

from __future__ import annotations

import hashlib
import random

from repair_ray.engines.heuristic import lexicon as lex
from repair_ray.engines.heuristic.edit import borne_out
from repair_ray.engines.heuristic.objects import view_of
from repair_ray.engines.heuristic.parse import parse
from repair_ray.engines.heuristic.rewrite import Rewrite


def paraphrases(caption: str, n: int) -> list[str]:
    """Up to `n` different rewrites that say what `caption` says; none where no word of it has a synonym.

    Which synonyms stand in is drawn by the caption's own text, so that the answer is always the same.
    """
    rng = random.Random(hashlib.sha256(caption.encode()).digest())
    found: list[str] = []
    for _ in range(4 * n):
        text = _rewritten(caption, rng)
        if text is not None and text not in found and _same(caption, text):
            found.append(text)
        if len(found) == n:
            break
    return found


def _same(one: str, other: str) -> bool:
    """Whether each of two texts bears the other out, so far as the rules can tell."""
    return borne_out(one, view_of((other,))) and borne_out(other, view_of((one,)))


def _rewritten(caption: str, rng: random.Random) -> str | None:
    parsed = parse(caption)
    rewrite = Rewrite(parsed)
    for phrase in parsed.phrases:
        for attr in phrase.attrs:
            word = parsed.tokens[attr.token].lower
            others = [w for w, known in lex.ATTRIBUTES.items() if known == (attr.cls, attr.value) and w != word]
            if others:
                rewrite.replace(attr.token, rng.choice([word, *others]))
        nouns = [noun for noun in lex.SAME_NOUNS.get(phrase.head, ()) if noun != phrase.head]
        if nouns:
            noun = rng.choice([phrase.head, *nouns])
            rewrite.replace(phrase.head_token, lex.plural(noun) if phrase.plural else noun)
    for relation in parsed.relations:
        words = " ".join(token.lower for token in parsed.tokens[relation.start : relation.end])
        ways = [w for w, axis, sign in lex.RELATION_PHRASES if (axis, sign) == (relation.axis, relation.sign)]
        if words in ways and relation.axis in lex.STRICT_AXES:
            way = rng.choice(ways)
            if way != words:
                rewrite.replace_span(relation.start, relation.end, way)
    text = rewrite.render()
    return None if text == caption else text
