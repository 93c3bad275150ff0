"""What the captions of one image tell about it: distinct objects, their attributes, and where they stand (ours)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product

from repair_ray.engines.heuristic import lexicon as lex
from repair_ray.engines.heuristic.parse import parse
from repair_ray.engines.heuristic.phrases import Parsed, Phrase

_MAX_STEPS = 2000
_MAX_FITTING = 6
_NEW = 1000  # a new thing costs more than all that a caption may have in common with the old ones


@dataclass
class Thing:
    """An object, or a group of equal ones. `attrs`: class -> value -> the word that a caption used for it."""

    head: str
    count: int | None = None
    plural: bool = False
    attrs: dict[str, dict[str, str]] = field(default_factory=dict)
    opens: list[str] = field(default_factory=list)
    roles: set[str] = field(default_factory=set)
    mentions: int = 0

    def values(self, cls: str) -> frozenset[str]:
        """The known values of one class; several for "black and white"."""
        return frozenset(self.attrs.get(cls, ()))


@dataclass
class View:
    """The things of an image; `sides[i, j, axis]` are the signs at which thing i was said to lie from thing j.

    `agreement` in [0, 1]: how many of a caption's nouns another caption has too, on average; 1 for a single caption.
    """

    captions: tuple[str, ...]
    things: list[Thing]
    sides: dict[tuple[int, int, str], set[int]]
    words: frozenset[str]
    agreement: float = 1.0


def heads_agree(phrase: Phrase, thing: Thing) -> bool:
    """Whether both may be one thing: equal or synonymous nouns, or one names a kind of the other."""
    a, b = lex.canonical(phrase.head), lex.canonical(thing.head)
    return lex.is_a(a, b) or lex.is_a(b, a)


def conflicting_classes(phrase: Phrase, thing: Thing) -> list[str]:
    """The classes of known modifiers that both state, differently. Of actions only postures exclude each other."""
    found = []
    for cls in phrase.classes:
        said, known = phrase.values(cls), thing.values(cls)
        if cls == "action":
            said, known = said & lex.POSTURES, known & lex.POSTURES
            if said and known and not said & known:
                found.append(cls)
        elif known and not said <= known:
            found.append(cls)
    return found


def counts_conflict(phrase: Phrase, thing: Thing) -> bool:
    """Whether both state a number, not the same one."""
    return phrase.count is not None and thing.count is not None and phrase.count != thing.count


def view_of(captions: Sequence[str]) -> View:
    """Merge the phrases of an image's captions into its things. Captions that say nothing add nothing."""
    return _view(tuple(captions))


@lru_cache(maxsize=8192)
def _view(captions: tuple[str, ...]) -> View:
    parsed = [parse(caption) for caption in captions]
    words = frozenset(lex.canonical(t.lower) for p in parsed for t in p.tokens)
    view = View(captions, [], {}, words, _agreement(parsed))
    # The caption that tells most goes first, so that vaguer ones find the things that they speak of.
    waiting = sorted(parsed, key=lambda p: -(100 * len(p.phrases) + sum(_detail(x) for x in p.phrases)))
    for caption in waiting:
        _merge(view, caption)
    for _ in range(2):  # what was ambiguous at first may be clear now
        for caption in waiting:
            _merge(view, caption)
    for caption in waiting:
        _place(view, caption)
    _close_sides(view)
    return view


def _agreement(parsed: list[Parsed]) -> float:
    nouns = [[lex.canonical(phrase.head) for phrase in caption.phrases] for caption in parsed if caption.phrases]
    if len(nouns) < 2:
        return 1.0
    shares = []
    for k, own in enumerate(nouns):
        others = {noun for m, other in enumerate(nouns) if m != k for noun in other}
        shares.append(sum(any(lex.is_a(a, b) or lex.is_a(b, a) for b in others) for a in own) / len(own))
    return sum(shares) / len(shares)


def _detail(phrase: Phrase) -> int:
    return len(phrase.attrs) + len(phrase.opens) + (phrase.count is not None)


def _may_be(phrase: Phrase, thing: Thing) -> bool:
    clashes = [cls for cls in conflicting_classes(phrase, thing) if cls != "action"]
    # "a black dog" and "a black and white dog" may be one dog, in whichever order they come.
    clashes = [cls for cls in clashes if not thing.values(cls) <= phrase.values(cls)]
    return heads_agree(phrase, thing) and not clashes and not counts_conflict(phrase, thing)


def _placements(view: View, caption: Parsed) -> list[tuple[int | None, ...]]:
    """The best ways to give the phrases of a caption to different things: fewest new ones, then most in common."""
    options: list[list[tuple[int, int | None]]] = []
    for phrase in caption.phrases:
        fitting: list[tuple[int, int | None]] = [
            (-_overlap(phrase, thing), i) for i, thing in enumerate(view.things) if _may_be(phrase, thing)
        ]
        options.append([*sorted(fitting, key=lambda option: option[0])[:_MAX_FITTING], (_NEW, None)])
    floor = [0] * (len(options) + 1)
    for k in reversed(range(len(options))):
        floor[k] = floor[k + 1] + options[k][0][0]
    best: list[tuple[int | None, ...]] = []
    best_cost = _NEW * (len(options) + 1)
    steps = 0

    def extend(k: int, chosen: tuple[int | None, ...], cost: int) -> None:
        nonlocal best, best_cost, steps
        steps += 1
        if cost + floor[k] > best_cost or (steps > _MAX_STEPS and best):
            return
        if k == len(options):
            best = [*best, chosen] if cost == best_cost else [chosen]
            best_cost = cost
            return
        for own, i in options[k]:
            if i is None or i not in chosen:
                extend(k + 1, (*chosen, i), cost + own)

    extend(0, (), 0)
    return best


def _overlap(phrase: Phrase, thing: Thing) -> int:
    shared = sum(bool(phrase.values(cls) & thing.values(cls)) for cls in phrase.classes)
    shared += sum(word in thing.opens for word, _ in phrase.opens)
    same_head = lex.canonical(phrase.head) == lex.canonical(thing.head)
    return 2 * shared + 2 * same_head + (phrase.count is not None and phrase.count == thing.count)


def _merge(view: View, caption: Parsed) -> None:
    placements = _placements(view, caption)
    for k, phrase in enumerate(caption.phrases):
        where = {placement[k] for placement in placements}
        if len(where) != 1:
            continue  # it could be several things: it tells nothing sure of either
        index = where.pop()
        if index is None:
            view.things.append(Thing(lex.singular(phrase.head)))
            index = len(view.things) - 1
        _learn(view.things[index], phrase, caption)


def _learn(thing: Thing, phrase: Phrase, caption: Parsed) -> None:
    said, known = lex.canonical(phrase.head), lex.canonical(thing.head)
    if said != known and lex.is_a(said, known):
        thing.head = phrase.head
    thing.roles.add(phrase.role)
    thing.mentions += 1
    if phrase.count is not None:
        thing.count = phrase.count
    thing.plural = thing.plural or phrase.plural
    for attr in phrase.attrs:
        thing.attrs.setdefault(attr.cls, {}).setdefault(attr.value, caption.tokens[attr.token].lower)
    thing.opens += [word for word, _ in phrase.opens if word not in thing.opens]


def _place(view: View, caption: Parsed) -> None:
    placements = _placements(view, caption)
    for relation in caption.relations:
        pairs = {(placement[relation.subject], placement[relation.object]) for placement in placements}
        if len(pairs) == 1:
            i, j = pairs.pop()
            if i is not None and j is not None:
                view.sides.setdefault((i, j, relation.axis), set()).add(relation.sign)
                view.sides.setdefault((j, i, relation.axis), set()).add(-relation.sign)


def _close_sides(view: View) -> None:
    """What is left of the left one is left of all: one step of transitivity is enough for what captions say."""
    known = dict(view.sides)
    for ((i, j, axis), a), ((k, m, other), b) in product(known.items(), known.items()):
        if axis == other and axis in lex.STRICT_AXES and j == k and i != m and a == b and len(a) == 1:
            view.sides.setdefault((i, m, axis), set()).update(a)


def name_of(thing: Thing, definite: bool = False) -> str:
    """A noun phrase with all that is known of a thing: `two small red striped circles`, or with "the" for one."""
    number = thing.count
    many = thing.plural if number is None else number > 1
    words = [" and ".join(thing.attrs[cls].values()) for cls in lex.CLASS_ORDER if cls in thing.attrs]
    words += [*thing.opens, lex.plural(thing.head) if many else thing.head]
    actions = [a for a in thing.attrs.get("action", ()) if a in lex.POSTURES or not definite]
    words += [lex.ACTION_FORMS[actions[0]][2]] if len(actions) == 1 else []
    numeral = [] if number is None else [lex.number_word(number)]
    if definite:
        return " ".join(["the", *(numeral if many else []), *words])
    return " ".join([lex.article(words[0]) if number == 1 else " ".join(numeral), *words]).strip()
