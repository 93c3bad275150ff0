"""Edited captions: the smallest rewrites of a wrong caption that the captions of the query image bear out (ours)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from repair_ray.engines.heuristic import lexicon as lex
from repair_ray.engines.heuristic.align import EDIT, JUDGE, Alignment, Finding, align
from repair_ray.engines.heuristic.objects import Thing, View, view_of
from repair_ray.engines.heuristic.parse import parse, tokenize
from repair_ray.engines.heuristic.phrases import Parsed, Phrase
from repair_ray.engines.heuristic.rewrite import Rewrite, changed_words

_ASSIGNMENTS = 6


@dataclass(frozen=True)
class CaptionEdit:
    """An edited caption, what was done, as (old words, new words), and how much.

    `words` counts the words that differ from the source, `changes` the attributes, nouns, numbers and relations that
    do, with two for a phrase left out.
    """

    text: str
    words: int
    changes: int
    steps: tuple[tuple[str, str], ...]


def caption_edits(source: str, captions: tuple[str, ...], n: int) -> list[CaptionEdit]:
    """Up to `n` different edits of `source` that `captions` bear out, fewest changed words first.

    Each is parsed again and kept only if every phrase and relation of it is then found in the captions. Never the
    source itself nor one of the captions (case and spaces aside).
    """
    parsed, view = parse(source), view_of(captions)
    taken = {_plain(text) for text in (source, *captions)}
    found: dict[str, CaptionEdit] = {}
    for rewrite, changes in _rewrites(source, parsed, view):
        text = rewrite.render()
        key = _plain(text)
        if key in taken or key in found or not borne_out(text, view):
            continue
        words = changed_words(parsed.tokens, tokenize(text))
        found[key] = CaptionEdit(text, words, changes, _steps(rewrite))
    # Ties go to the edit that says more (one that leaves words out is the poorer), then to the nearest things.
    ranked = sorted(found.values(), key=lambda edit: (edit.words, -len(tokenize(edit.text))))
    return ranked[:n]


def changes_of(alignment: Alignment) -> int:
    """How many changes an alignment asks for: one a finding, two for a phrase that is no thing."""
    return sum(2 if f.kind == "missing" else 1 for f in alignment.findings)


def borne_out(text: str, view: View) -> bool:
    """Whether all that a text says is found in an image's captions; what someone does may stay untold."""
    if not parse(text).phrases:
        return False
    best = align(text, view, JUDGE)[0]
    return all(f.kind == "action" and not f.denied for f in best.findings)


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def _rewrites(source: str, parsed: Parsed, view: View) -> Iterator[tuple[Rewrite, int]]:
    for alignment in align(source, view, EDIT, _ASSIGNMENTS):
        if all(thing is None for thing in alignment.things):
            continue
        for drop in (False, True):
            yield _rewrite(parsed, view, alignment, alignment.findings, drop), changes_of(alignment)
        # Leaving out one phrase at a time is another way to be right.
        for k in sorted({f.phrase for f in alignment.findings if f.kind != "relation"}):
            if sum(thing is not None for thing in alignment.things) > 1 and alignment.things[k] is not None:
                things = tuple(None if m == k else thing for m, thing in enumerate(alignment.things))
                others = (*(f for f in alignment.findings if f.phrase != k or f.kind == "relation"), _absent(k))
                without = Alignment(things, others, 0.0)
                yield _rewrite(parsed, view, without, others, False), changes_of(without)


def _absent(k: int) -> Finding:
    return Finding("missing", True, k)


def _rewrite(parsed: Parsed, view: View, alignment: Alignment, findings: tuple[Finding, ...], drop: bool) -> Rewrite:
    """Apply what each finding asks for. `drop`: leave wrong modifiers and relations out instead of replacing them."""
    rewrite = Rewrite(parsed)
    for k, phrase in enumerate(parsed.phrases):
        index = alignment.things[k]
        if index is None:
            continue
        thing = view.things[index]
        for finding in findings:
            if finding.phrase == k and finding.kind != "relation":
                _mend(rewrite, phrase, thing, finding, drop)
    for finding in findings:
        if finding.kind == "relation":
            _mend_relation(rewrite, parsed, view, alignment, finding, drop)
    _leave_out(rewrite, parsed, view, alignment)
    return rewrite


def _mend(rewrite: Rewrite, phrase: Phrase, thing: Thing, finding: Finding, drop: bool) -> None:
    if finding.kind == "head":
        many = _is_many(phrase, thing)
        rewrite.replace(phrase.head_token, lex.plural(thing.head) if many else thing.head)
    elif finding.kind == "open":
        _mend_open(rewrite, phrase, thing, finding.cls, drop)
    elif finding.kind == "count":
        _mend_count(rewrite, phrase, thing)
    elif finding.kind == "action":
        _mend_action(rewrite, phrase, thing)
    elif finding.kind == "attr":
        tokens = [a.token for a in phrase.attrs if a.cls == finding.cls]
        rewrite.delete(tokens[0], tokens[-1] + 1)  # "black and white" is one value
        known = thing.attrs.get(finding.cls)
        if known and not drop:
            rewrite.replace(tokens[0], " and ".join(known.values()))


def _is_many(phrase: Phrase, thing: Thing) -> bool:
    count = thing.count if phrase.count is not None else phrase.count
    return phrase.plural if count is None else count > 1


def _mend_open(rewrite: Rewrite, phrase: Phrase, thing: Thing, word: str, drop: bool) -> None:
    tokens = [token for said, token in phrase.opens if said == word]
    stated = {said for said, _ in phrase.opens}
    leftover = [known for known in thing.opens if known not in stated]
    rank = [said for said, _ in phrase.opens if said not in thing.opens].index(word)
    for token in tokens:
        if rank < len(leftover) and not drop:
            rewrite.replace(token, leftover[rank])
        else:
            rewrite.delete(token, token + 1)


def _mend_count(rewrite: Rewrite, phrase: Phrase, thing: Thing) -> None:
    number = phrase.count_token
    many = thing.plural if thing.count is None else thing.count > 1
    if number is not None:
        if thing.count is None:
            # Not known how many: "the" claims no number.
            rewrite.replace(number, "the")
        elif thing.count == 1:
            rewrite.replace(number, "a")
        else:
            rewrite.replace(number, lex.number_word(thing.count))
    if many != phrase.plural:
        noun = rewrite.changes.get(phrase.head_token, rewrite.parsed.tokens[phrase.head_token].lower)
        one = lex.singular(noun.lower())
        rewrite.replace(phrase.head_token, lex.plural(one) if many else one)


def _mend_action(rewrite: Rewrite, phrase: Phrase, thing: Thing) -> None:
    known = [lex.ACTION_FORMS[value] for value in thing.values("action") if value in lex.POSTURES]
    if not known:
        return
    for attr in phrase.attrs:
        if attr.cls == "action" and attr.value in lex.POSTURES:
            form = lex.ACTION_FORMS[attr.value].index(rewrite.parsed.tokens[attr.token].lower)
            rewrite.replace(attr.token, min(known)[form])


def _mend_relation(
    rewrite: Rewrite, parsed: Parsed, view: View, alignment: Alignment, finding: Finding, drop: bool
) -> None:
    relation = parsed.relations[finding.relation]
    i, j = alignment.things[relation.subject], alignment.things[relation.object]
    if i is None or j is None:
        return
    signs = view.sides.get((i, j, relation.axis))
    known = {axis: s for (a, b, axis), s in view.sides.items() if (a, b) == (i, j) and axis in lex.STRICT_AXES}
    if signs and relation.sign not in signs and not drop:
        for k in range(relation.start, relation.end):
            word = parsed.tokens[k].lower
            if word in lex.OPPOSITE_WORDS:
                rewrite.replace(k, lex.OPPOSITE_WORDS[word])
                return
    if known and not drop:
        axis = relation.axis if relation.axis in known else min(known)
        rewrite.replace_span(relation.start, relation.end, lex.RELATION_WORDS[axis, min(known[axis])])
    else:
        rewrite.replace_span(relation.start, relation.end, "next to")


def _leave_out(rewrite: Rewrite, parsed: Parsed, view: View, alignment: Alignment) -> None:
    """Leave out the phrases that are no thing, with the words that join them to the one kept before (or after)."""
    phrases = parsed.phrases
    kept = [k for k, thing in enumerate(alignment.things) if thing is not None]
    if kept[0] > 0:
        rewrite.delete(phrases[0].start, phrases[kept[0]].start)
    for before, after in zip(kept, [*kept[1:], len(phrases)], strict=True):
        if after == before + 1:
            continue
        rewrite.delete(phrases[before].end, phrases[after - 1].end)
        if after < len(phrases):
            # The joint that is left would relate the two that are kept: say what is known of these.
            rewrite.replace_span(phrases[before].end, phrases[after].start, _joint(view, alignment, before, after))


def _joint(view: View, alignment: Alignment, before: int, after: int) -> str:
    pair = alignment.things[before], alignment.things[after]
    known = {axis: s for (i, j, axis), s in view.sides.items() if (i, j) == pair and axis in lex.STRICT_AXES}
    for axis, signs in sorted(known.items()):
        return lex.RELATION_WORDS[axis, min(signs)]
    return "and"


def _steps(rewrite: Rewrite) -> tuple[tuple[str, str], ...]:
    """What a rewrite does, neighbouring tokens taken together, as (old words, new words)."""
    tokens, steps = rewrite.parsed.tokens, []
    changed = sorted(rewrite.changes)
    while changed:
        run = [changed.pop(0)]
        while changed and changed[0] == run[-1] + 1:
            run.append(changed.pop(0))
        old = rewrite.parsed.text[tokens[run[0]].start : tokens[run[-1]].end]
        new = " ".join(rewrite.changes[k] for k in run if rewrite.changes[k])
        steps.append((old, new))
    return tuple(steps)
