"""Captions into noun phrases and relations, by closed word classes alone; no grammar model (ours)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache

from repair_ray.engines.heuristic import lexicon as lex
from repair_ray.engines.heuristic.phrases import Attr, Parsed, Phrase, Relation, Token

_TOKEN = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")
_SENTENCE_ENDS = frozenset(".;!?")


@dataclass
class _Pending:
    axis: str
    sign: int
    start: int
    end: int
    subject: int | None
    object: int | None = None


@dataclass
class _State:
    tokens: tuple[Token, ...]
    phrases: list[Phrase] = field(default_factory=list)
    relations: list[Relation] = field(default_factory=list)
    segment: list[int] = field(default_factory=list)
    headless: list[list[int]] = field(default_factory=list)
    pending: list[_Pending] = field(default_factory=list)  # relations that wait for their object
    after_auxiliary: bool = False
    there: bool = False  # "there are circles": the noun comes after the verb
    group: tuple[int, int | None] | None = None  # first token and count of "a pair of"


def tokenize(text: str) -> tuple[Token, ...]:
    """Split into words (hyphens and apostrophes kept inside) and single signs."""
    return tuple(Token(m.group(), m.group().lower(), m.start(), m.end()) for m in _TOKEN.finditer(text))


@lru_cache(maxsize=65536)
def parse(text: str) -> Parsed:
    """Parse one caption. Text without a noun phrase gives no phrases; nothing is raised."""
    state = _State(tokenize(text))
    spoken_to = _clauses_to_reader(state.tokens)
    i = 0
    while i < len(state.tokens):
        i = _skip(state, i) if i in spoken_to else _step(state, i)
    _close(state)
    if not state.phrases and state.headless:
        state.phrases.append(_headless_phrase(state.tokens, state.headless[0]))
    return Parsed(text, state.tokens, tuple(state.phrases), tuple(state.relations))


def _clauses_to_reader(tokens: tuple[Token, ...]) -> frozenset[int]:
    inside: set[int] = set()
    speaking = False
    for i, token in enumerate(tokens):
        first = i == 0 or tokens[i - 1].lower in lex.CLAUSE_STARTERS
        begins = token.lower in lex.READER_WORDS or (first and token.lower in lex.ORDERS)
        speaking = (speaking or begins) and token.lower not in _SENTENCE_ENDS
        if speaking:
            inside.add(i)
    return frozenset(inside)


def _skip(state: _State, i: int) -> int:
    _close(state)
    state.pending = []
    return i + 1


def _step(state: _State, i: int) -> int:
    """Read the token at `i` (or the fixed expression that starts there) and return the next index."""
    word = state.tokens[i].lower
    for length, axis, sign, postfix in _expressions(state, i):
        _close(state)
        _open_relation(state, i, i + length, axis, sign, postfix)
        return i + length
    if word == "of" and _is_group(state):
        first, group = state.segment[0], state.tokens[state.segment[-1]].lower
        state.group, state.segment = (first, lex.GROUPS[group]), []
    elif word in lex.AUXILIARIES:
        _close(state)
        state.after_auxiliary = True
        state.there = i > 0 and state.tokens[i - 1].lower == "there"
    elif _joins_modifiers(state, i):
        pass
    elif not word[0].isalnum() or word in lex.LINKERS | lex.PREPOSITIONS | lex.FILLERS:
        _close(state)
        state.after_auxiliary = False
    elif word in lex.STARTERS:
        if any(state.tokens[k].lower not in lex.STARTERS for k in state.segment):
            _close(state, runs_into=True)
        state.segment.append(i)
    elif _is_verb(state, i):
        _read_verb(state, i)
    elif not (word.endswith("ly") and len(word) > 5 and word not in {"family", "butterfly", "assembly", "dragonfly"}):
        if word in lex.NUMBERS and _has_noun(state):
            _close(state, runs_into=True)
        state.segment.append(i)
    return i + 1


def _expressions(state: _State, i: int) -> list[tuple[int, str, int, bool]]:
    words = tuple(token.lower for token in state.tokens[i : i + 6])
    for form, axis, sign in lex.RELATIONS:
        if words[: len(form)] == form and not (words[:1] == ("on",) and _names_side(words)):
            return [(len(form), axis, sign, False)]
    for form, axis, sign in lex.POSTFIX_RELATIONS:
        if words[: len(form)] == form:
            return [(len(form), axis, sign, True)]
    return []


def _names_side(words: tuple[str, ...]) -> bool:
    return words[1:3] in {(a, s) for a in ("the", "its") for s in ("left", "right")} and words[3:4] != ("of",)


def _open_relation(state: _State, start: int, end: int, axis: str, sign: int, postfix: bool) -> None:
    last = len(state.phrases) - 1
    if postfix:
        if last >= 1:
            state.relations.append(Relation(last, last - 1, axis, sign, start, end))
        return
    subject = last if last >= 0 else None
    if state.relations and start and state.tokens[start - 1].lower in {"and", ","}:
        subject = state.relations[-1].subject  # "X left of Y and above Z": X is above Z
    if state.pending and state.tokens[start - 1].lower == "and":  # "above and to the left of"
        state.pending.append(_Pending(axis, sign, start, end, state.pending[0].subject))
    else:
        state.pending = [_Pending(axis, sign, start, end, subject)]


def _is_group(state: _State) -> bool:
    return bool(state.segment) and state.tokens[state.segment[-1]].lower in lex.GROUPS


def _joins_modifiers(state: _State, i: int) -> bool:
    """ "and" or a comma inside "a black and white dog": known modifiers on both sides and no noun yet."""
    if state.tokens[i].lower not in {"and", ","} or not state.segment or i + 1 >= len(state.tokens):
        return False
    before, after = state.tokens[state.segment[-1]].lower, state.tokens[i + 1].lower
    return before in lex.ATTRIBUTES and after in lex.ATTRIBUTES and not _has_noun(state)


def _has_noun(state: _State) -> bool:
    return any(_is_open(state.tokens[k].lower) for k in state.segment)


def _is_open(word: str) -> bool:
    known = word in lex.ATTRIBUTES or word in lex.NUMBERS or word in lex.STARTERS or word.isdigit()
    return not known and word not in lex.ACTIONS


def _is_verb(state: _State, i: int) -> bool:
    word = state.tokens[i].lower
    if word in lex.ING_NOUNS:
        return False
    if word in lex.ACTIONS:
        return word.endswith("ing") or _has_noun(state) or (not state.segment and bool(state.phrases))
    generic = len(word) > 5 and word.endswith("ing") and re.search(r"[aeiouy]", word[:-3]) is not None
    return generic and (_has_noun(state) or not state.segment)


def _read_verb(state: _State, i: int) -> None:
    word = state.tokens[i].lower
    if (state.segment and not _has_noun(state)) or (not state.phrases and not state.segment):
        state.segment.append(i)  # "a running dog"
        return
    if state.segment:
        _close(state)
    if state.phrases and word in lex.ACTIONS:
        doer = _doer(state)
        action = Attr("action", lex.ACTIONS[word], i)
        state.phrases[doer] = replace(state.phrases[doer], attrs=(*state.phrases[doer].attrs, action))
    state.after_auxiliary = False


def _doer(state: _State) -> int:
    """Who does it: in "a child in a dress is climbing" not the dress."""
    doer = len(state.phrases) - 1
    for relation in reversed(state.relations):
        if relation.object == doer and relation.axis == "containment" and relation.subject < doer:
            doer = relation.subject
    return doer


def _close(state: _State, runs_into: bool = False) -> None:
    """End the current segment; a noun in it makes a phrase, known modifiers alone may speak of the last one."""
    segment, state.segment = state.segment, []
    group, state.group = state.group, None
    predicate, state.after_auxiliary = state.after_auxiliary, False
    tokens = state.tokens
    if not segment:
        return
    opens = _without_verb(tokens, segment, [k for k in segment if _is_open(tokens[k].lower)], runs_into)
    bare = not any(_starts_noun(tokens[k].lower) for k in segment)
    if (
        opens
        and predicate
        and bare
        and state.phrases
        and not state.there
        and not lex.is_plural(tokens[opens[-1]].lower)
    ):
        return  # "is ready", "is suspended": said of the last noun, not a noun
    if not opens:
        known = [k for k in segment if tokens[k].lower in lex.ATTRIBUTES]
        if known and predicate and state.phrases:
            last = state.phrases[-1]
            state.phrases[-1] = replace(last, attrs=(*last.attrs, *_attrs(tokens, known)))
        elif known and tokens[segment[0]].lower in {"a", "an"}:
            _add(state, _headless_phrase(tokens, segment))
        elif known:
            state.headless.append(segment)
        return
    if tokens[opens[-1]].lower in lex.PICTURE_NOUNS:
        return
    numbers = [k for k in segment if tokens[k].lower in lex.NUMBERS or tokens[k].lower.isdigit()]
    count = _number(tokens[numbers[-1]].lower) if numbers else None
    start = segment[0]
    if group:
        start, count, numbers = group[0], group[1] if count is None else count, numbers or [group[0]]
    head = opens[-1]
    _add(
        state,
        Phrase(
            start=start,
            end=head + 1,
            head=lex.singular(tokens[head].lower),
            head_token=head,
            plural=lex.is_plural(tokens[head].lower),
            count=count,
            count_token=numbers[-1] if numbers and count is not None else None,
            attrs=_attrs(tokens, [k for k in segment if k < head]),
            opens=tuple((lex.singular(tokens[k].lower), k) for k in opens[:-1]),
        ),
    )


def _without_verb(tokens: tuple[Token, ...], segment: list[int], opens: list[int], runs_into: bool) -> list[int]:
    """Leave out a last word that must be a verb: "a man throws | a ball", "a dog leaps", "a man dressed | in"."""
    if len(opens) < 2 or opens[-1] != segment[-1]:
        return opens
    last = tokens[opens[-1]].lower
    first = tokens[segment[0]].lower
    one = first in {"a", "an", "one"}
    verb = runs_into or (one and lex.is_plural(last)) or (last.endswith("ed") and len(last) > 4)
    return opens[:-1] if verb else opens


def _starts_noun(word: str) -> bool:
    return word in lex.STARTERS or word in lex.NUMBERS or word.isdigit()


def _attrs(tokens: tuple[Token, ...], indices: list[int]) -> tuple[Attr, ...]:
    found = [Attr(*lex.ATTRIBUTES[tokens[k].lower], k) for k in indices if tokens[k].lower in lex.ATTRIBUTES]
    found += [Attr("action", lex.ACTIONS[tokens[k].lower], k) for k in indices if tokens[k].lower in lex.ACTIONS]
    return tuple(found)


def _number(word: str) -> int | None:
    if word.isdigit():
        return int(word) if len(word) < 6 else None
    return lex.NUMBERS[word]


def _headless_phrase(tokens: tuple[Token, ...], segment: list[int]) -> Phrase:
    """A segment of known words only: its last word is the noun ("an orange")."""
    head = segment[-1]
    numbers = [k for k in segment[:-1] if tokens[k].lower in lex.NUMBERS]
    return Phrase(
        start=segment[0],
        end=head + 1,
        head=lex.singular(tokens[head].lower),
        head_token=head,
        plural=False,
        count=lex.NUMBERS[tokens[numbers[-1]].lower] if numbers else None,
        count_token=numbers[-1] if numbers else None,
        attrs=_attrs(tokens, segment[:-1]),
        opens=(),
    )


def _add(state: _State, phrase: Phrase) -> None:
    index = _mentioned_before(state.phrases, phrase)
    if index is None:
        state.phrases.append(replace(phrase, role=_role(state, phrase)))
        index = len(state.phrases) - 1
    waiting, state.pending = state.pending, []
    for relation in waiting:
        if relation.subject is not None:
            subject, anchor = relation.subject, index
        elif relation.object is not None:
            subject, anchor = index, relation.object
        else:
            relation.object = index  # "to the left of X, Y": wait for Y
            state.pending.append(relation)
            continue
        if subject != anchor:
            state.relations.append(
                Relation(subject, anchor, relation.axis, relation.sign, relation.start, relation.end)
            )


def _role(state: _State, phrase: Phrase) -> str:
    if not state.phrases:
        return "^"
    word = state.tokens[phrase.start - 1].lower
    return word if word in lex.PREPOSITIONS or word == "with" else ""


def _mentioned_before(phrases: list[Phrase], phrase: Phrase) -> int | None:
    """The earlier phrase that one without a number takes up: "a red dog ... the dog"."""
    if phrase.count is not None:
        return None
    for index, earlier in enumerate(phrases):
        same = lex.canonical(earlier.head) == lex.canonical(phrase.head) and earlier.plural == phrase.plural
        less = all(phrase.values(cls) <= earlier.values(cls) for cls in phrase.classes)
        if same and less and {word for word, _ in phrase.opens} <= {word for word, _ in earlier.opens}:
            return index
    return None
