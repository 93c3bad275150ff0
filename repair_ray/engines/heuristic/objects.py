"""What the captions of one image tell about it: distinct objects, their attributes, and where they stand (ours)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product

from repair_ray.engines.heuristic import lexicon as lex
from repair_ray.engines.heuristic.parse import Parsed, Phrase, parse

_MAX_PLACEMENTS = 4000


@dataclass
class Thing:
    """An object, or a group of equal ones. `attrs`: class -> value -> the word that a caption used for it."""

    head: str
    count: int | None = None
    plural: bool = False
    attrs: dict[str, dict[str, str]] = field(default_factory=dict)
    opens: list[str] = field(default_factory=list)

    def values(self, cls: str) -> frozenset[str]:
        """The known values of one class; several for "black and white"."""
        return frozenset(self.attrs.get(cls, ()))


@dataclass
class View:
    """The things of an image; `sides[i, j, axis]` are the signs at which thing i was said to lie from thing j."""

    captions: tuple[str, ...]
    things: list[Thing]
    sides: dict[tuple[int, int, str], set[int]]
    words: frozenset[str]


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
    view = View(captions, [], {}, words)
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


def _detail(phrase: Phrase) -> int:
    return len(phrase.attrs) + len(phrase.opens) + (phrase.count is not None)


def _may_be(phrase: Phrase, thing: Thing) -> bool:
    clashes = [cls for cls in conflicting_classes(phrase, thing) if cls != "action"]
    # "a black dog" and "a black and white dog" may be one dog, in whichever order they come.
    clashes = [cls for cls in clashes if not thing.values(cls) <= phrase.values(cls)]
    return heads_agree(phrase, thing) and not clashes and not counts_conflict(phrase, thing)


def _placements(view: View, caption: Parsed) -> list[tuple[int | None, ...]]:
    """The best ways to give the phrases of a caption to different things: fewest new ones, then most in common."""
    options: list[list[int | None]] = []
    for phrase in caption.phrases:
        fitting: list[int | None] = [i for i, thing in enumerate(view.things) if _may_be(phrase, thing)]
        options.append([*fitting[:6], None])
    best: list[tuple[int | None, ...]] = []
    best_score: tuple[int, int] | None = None
    for tried, placement in enumerate(_distinct_choices(options)):
        new = sum(i is None for i in placement)
        shared = sum(
            _overlap(p, view.things[i]) for p, i in zip(caption.phrases, placement, strict=True) if i is not None
        )
        score = (new, -shared)
        if best_score is None or score < best_score:
            best, best_score = [placement], score
        elif score == best_score:
            best.append(placement)
        if tried >= _MAX_PLACEMENTS:
            break
    return best


def _distinct_choices(options: list[list[int | None]]) -> Iterator[tuple[int | None, ...]]:
    def extend(k: int, used: frozenset[int], chosen: tuple[int | None, ...]) -> Iterator[tuple[int | None, ...]]:
        if k == len(options):
            yield chosen
            return
        for i in options[k]:
            if i is None:
                yield from extend(k + 1, used, (*chosen, None))
            elif i not in used:
                yield from extend(k + 1, used | {i}, (*chosen, i))

    return extend(0, frozenset(), ())


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


def name_of(thing: Thing, count: int | None = None, definite: bool = False) -> str:
    """A noun phrase with all that is known of a thing: `two small red striped circles`, or with "the" for one."""
    number = thing.count if count is None else count
    many = (number or (2 if thing.plural else 1)) > 1
    words = [
        " and ".join(thing.attrs[cls].values())
        for cls in lex.CLASS_ORDER
        if cls in thing.attrs
    ]
    words += thing.opens
    words.append(lex.plural(thing.head) if many else thing.head)
    if definite:
        numeral = [lex.number_word(number)] if number is not None and number > 1 else []
        return " ".join(["the", *numeral, *words])
    if number == 1 or (number is None and not many):
        return " ".join([lex.article(words[0]), *words])
    return " ".join([*([lex.number_word(number)] if number is not None else []), *words])
