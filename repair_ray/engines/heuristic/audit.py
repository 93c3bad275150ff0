"""Judges one failure from captions alone: is the ground truth right, and is the false positive wrong (ours)."""

from __future__ import annotations

from collections.abc import Sequence

from repair_ray.engines.heuristic import lexicon as lex
from repair_ray.engines.heuristic.align import JUDGE, Alignment, Finding, align
from repair_ray.engines.heuristic.objects import Thing, View, view_of
from repair_ray.engines.heuristic.parse import parse
from repair_ray.engines.heuristic.phrases import Parsed, Phrase, Relation
from repair_ray.engines.language import Case, ErrorType, Mismatch, Verdict

# How sure a denial of each kind makes. People name one thing by many nouns, but seldom misname a colour or a number.
_SURE = {"attr": 0.95, "count": 0.9, "relation": 0.9, "action": 0.7, "head": 0.75, "open": 0.65, "missing": 0.65}
_MANY = 3  # captions that outweigh one


def target_of(case: Case) -> tuple[str, tuple[str, ...]]:
    """The caption that is in question and the captions of the image that it should describe.

    Raises ValueError when the case lacks the text that its direction needs.
    """
    if case.direction == "i2t":
        if case.candidate_text is None:
            raise ValueError("an i2t case needs candidate_text, the wrong caption; it is missing")
        return case.candidate_text, case.query_captions
    if case.query_text is None:
        raise ValueError("a t2i case needs query_text, the caption that retrieved the image; it is missing")
    return case.query_text, case.candidate_captions


def audit(case: Case) -> Verdict:
    """Judge a case. Raises ValueError when it lacks the text that its direction needs."""
    caption, captions = target_of(case)
    view = view_of(captions)
    if not parse(caption).phrases:
        return Verdict("unsure", confidence=0.0, reason="no noun phrase was found in the caption in question")
    if not view.things:
        return Verdict("unsure", confidence=0.0, reason="the image has no caption with a noun phrase")
    wrong = wrong_ground_truth(case)
    if wrong:
        return Verdict("bad_ground_truth", confidence=0.7, reason=wrong)
    best = align(caption, view, JUDGE)[0]
    if best.contradicts(view):
        swap = case.direction == "t2i"
        mismatches = tuple(dict.fromkeys(_mismatch(f, parse(caption), best, view, swap) for f in best.denied))
        confidence = max(_SURE[f.kind] for f in best.denied)
        reason = "the captions of the image deny: " + "; ".join(_words_of(f, parse(caption)) for f in best.denied)
        return Verdict("valid", mismatches, confidence, reason)
    if best.supported:
        return Verdict("benign_match", confidence=0.9, reason="the captions of the image bear out every phrase")
    untold = "; ".join(_words_of(f, parse(caption)) for f in best.findings)
    return Verdict("unsure", confidence=0.5, reason=f"the captions of the image do not tell: {untold}")


def wrong_ground_truth(case: Case) -> str:
    """Why the query's own pair looks wrong; empty when it does not.

    t2i: the query against the other captions of its image. i2t: no caption agrees with the others.
    """
    if case.direction == "t2i":
        siblings = list(case.query_captions)
        text = case.query_text or ""
        if text in siblings:
            siblings.remove(text)
        return "the query contradicts the other captions of its image" if _at_odds(text, siblings) else ""
    captions = case.query_captions
    others = [[*captions[:k], *captions[k + 1 :]] for k in range(len(captions))]
    if len(captions) > 1 and all(_at_odds(caption, rest) for caption, rest in zip(captions, others, strict=True)):
        return "no caption of the query image agrees with the others"
    return ""


def _at_odds(caption: str, siblings: Sequence[str]) -> bool:
    """Whether siblings deny what a caption says of their things, or it has nothing in common with siblings that agree.

    That a sibling leaves a thing out is no denial: captions of one photo name different things.
    """
    parsed, view = parse(caption), view_of(siblings)
    if not parsed.phrases or not view.things:
        return False
    best = align(caption, view, JUDGE)[0]
    if not _denied_outright(best):
        if len(siblings) >= _MANY and view.agreement == 1.0:
            return bool(best.denied)  # all of them name the same things, it names another
        absent = {f.phrase for f in best.denied} == set(range(len(parsed.phrases)))
        return absent and not _shares_words(parsed, view) and _agree(siblings)
    said = [align(caption, view_of([sibling]), JUDGE)[0] for sibling in siblings if parse(sibling).phrases]
    against = sum(_denied_outright(alignment) for alignment in said)
    consistent = sum(not alignment.denied for alignment in said)
    return against > max(consistent, len(said) // 3)


def _denied_outright(alignment: Alignment) -> bool:
    """Whether a colour, number or place is denied: what people who look at one photo seldom disagree on."""
    return any(f.kind in {"attr", "count", "relation"} for f in alignment.denied)


def _shares_words(parsed: Parsed, view: View) -> bool:
    return any(lex.canonical(phrase.head) in view.words for phrase in parsed.phrases)


def _agree(siblings: Sequence[str]) -> bool:
    heads = [{lex.canonical(phrase.head) for phrase in parse(sibling).phrases} for sibling in siblings]
    linked = sum(any(a & b for m, b in enumerate(heads) if m != k) for k, a in enumerate(heads))
    return len(siblings) > 1 and 2 * linked > len(siblings)


def _mismatch(finding: Finding, parsed: Parsed, best: Alignment, view: View, swap: bool) -> Mismatch:
    """A denial in the words of both sides. `swap`: the caption in question is the query's, not the candidate's."""
    phrase = parsed.phrases[finding.phrase]
    index = best.things[finding.phrase]
    thing = view.things[index] if index is not None else None
    kind: ErrorType = "attribute"
    if finding.kind == "relation":
        relation = parsed.relations[finding.relation]
        said, known = _relation_words(relation, parsed), _known_side(relation, best, view)
        kind = "relation"
    elif thing is None:
        said, known = _text(phrase, parsed), ""
        kind = "object" if swap else "hallucination"
    elif finding.kind == "head":
        said, known = phrase.head, thing.head
        kind = "object"
    elif finding.kind == "count":
        said, known = _number(phrase.count), _number(thing.count)
        kind = "count"
    elif finding.kind == "open":
        said = finding.cls
        known = " ".join(word for word in thing.opens if word not in dict(phrase.opens))
    else:
        said, known = _stated(phrase, finding.cls, parsed), _known(thing, finding.cls)
        kind = "action" if finding.kind == "action" else "attribute"
    return Mismatch(kind, said, known) if swap else Mismatch(kind, known, said)


def _words_of(finding: Finding, parsed: Parsed) -> str:
    phrase = parsed.phrases[finding.phrase]
    if finding.kind == "relation":
        relation = parsed.relations[finding.relation]
        other = parsed.phrases[relation.object]
        return f"'{_text(phrase, parsed)}' {_relation_words(relation, parsed)} '{_text(other, parsed)}'"
    words = {"attr": finding.cls, "action": "action", "open": finding.cls, "count": "number"}.get(finding.kind, "")
    return f"{words} of '{_text(phrase, parsed)}'" if words else f"'{_text(phrase, parsed)}'"


def _text(phrase: Phrase, parsed: Parsed) -> str:
    return parsed.text[parsed.tokens[phrase.start].start : parsed.tokens[phrase.end - 1].end]


def _relation_words(relation: Relation, parsed: Parsed) -> str:
    return parsed.text[parsed.tokens[relation.start].start : parsed.tokens[relation.end - 1].end]


def _known_side(relation: Relation, best: Alignment, view: View) -> str:
    i, j = best.things[relation.subject], best.things[relation.object]
    if i is None or j is None:
        return ""
    signs = view.sides.get((i, j, relation.axis), set())
    return lex.RELATION_WORDS[relation.axis, min(signs)] if signs else ""


def _number(count: int | None) -> str:
    return "" if count is None else lex.number_word(count)


def _stated(phrase: Phrase, cls: str, parsed: Parsed) -> str:
    return " and ".join(parsed.tokens[a.token].lower for a in phrase.attrs if a.cls == cls)


def _known(thing: Thing, cls: str) -> str:
    return " and ".join(thing.attrs.get(cls, {}).values())
