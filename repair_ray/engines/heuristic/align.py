"""Assigns the phrases of a caption to different things of an image, and says what then does not fit (ours)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from repair_ray.engines.heuristic import lexicon as lex
from repair_ray.engines.heuristic.objects import Thing, View, conflicting_classes, counts_conflict, heads_agree, view_of
from repair_ray.engines.heuristic.parse import parse
from repair_ray.engines.heuristic.phrases import Parsed, Phrase, Relation

_MAX_NODES = 1000
_COMPLETE = 0.9  # agreement from which an image's captions are taken to name all that is there
_OTHER_HEADS = 4  # things of another noun that a phrase may be compared with

Kind = Literal["head", "missing", "attr", "open", "action", "count", "relation"]


@dataclass(frozen=True)
class Finding:
    """One thing that a caption says and the image's captions deny (`denied`) or do not tell.

    `phrase` is an index of the caption's phrases, `relation` of its relations; `cls` the class of a modifier, or the
    word itself for an open one.
    """

    kind: Kind
    denied: bool
    phrase: int
    cls: str = ""
    relation: int = -1


_Option = tuple[float, int | None, tuple[Finding, ...]]  # cost, thing, findings


@dataclass(frozen=True)
class Costs:
    """What a finding costs when assignments are compared."""

    denied: float
    unknown: float
    head: float
    missing: float
    role: float = 0.0  # for another noun that stands in another place of the sentence


# To judge: first the fewest denials, then the fewest unknowns. To edit: the fewest changes; to leave a phrase out costs
# as much as to change three of its words.
JUDGE = Costs(denied=1.0, unknown=0.01, head=1.2, missing=1.5)
EDIT = Costs(denied=1.0, unknown=1.0, head=1.3, missing=3.1, role=0.4)


@dataclass(frozen=True)
class Alignment:
    """Phrase k is thing `things[k]` (None: no thing), at `cost`, with these findings."""

    things: tuple[int | None, ...]
    findings: tuple[Finding, ...]
    cost: float

    @property
    def denied(self) -> tuple[Finding, ...]:
        """The findings that contradict the image's captions."""
        return tuple(f for f in self.findings if f.denied)

    def contradicts(self, view: View) -> bool:
        """Whether the captions deny what this one says.

        Captions that all name the same things also deny, by silence, a thing that they do not name. Where they name
        different ones, only half of the caption's things or more being absent counts.
        """
        absent = {f.phrase for f in self.denied if f.kind in {"head", "missing"}}
        if any(f.kind not in {"head", "missing"} and f.phrase not in absent for f in self.denied):
            return True
        return bool(absent) and (view.agreement >= _COMPLETE or 2 * len(absent) >= len(self.things))

    @property
    def supported(self) -> bool:
        """Whether the image's captions bear out all that the caption says."""
        return not self.findings


def compare(parsed: Parsed, k: int, view: View, i: int | None) -> tuple[Finding, ...]:
    """What does not fit when phrase k of a caption is thing i of the image."""
    phrase = parsed.phrases[k]
    if i is None:
        # A word that the captions use in another role ("playhouse door") is not denied by them.
        in_other_role = lex.canonical(phrase.head) in view.words and not any(
            heads_agree(phrase, thing) for thing in view.things
        )
        return (Finding("missing", not in_other_role, k),)
    thing = view.things[i]
    found: list[Finding] = []
    if not heads_agree(phrase, thing):
        found.append(Finding("head", True, k))
    elif not lex.is_a(lex.canonical(thing.head), lex.canonical(phrase.head)):
        found.append(Finding("head", False, k))  # "a man" where the captions say "a person"
    conflicting = conflicting_classes(phrase, thing)
    for cls in phrase.classes:
        kind: Kind = "action" if cls == "action" else "attr"
        if cls in conflicting:
            found.append(Finding(kind, True, k, cls))
        elif not phrase.values(cls) <= thing.values(cls):
            found.append(Finding(kind, False, k, cls))
    leftover = [word for word in thing.opens if word not in dict(phrase.opens)]
    for word, _ in phrase.opens:
        if word not in thing.opens:
            found.append(Finding("open", bool(leftover) and lex.canonical(word) not in view.words, k, word))
    if counts_conflict(phrase, thing):
        found.append(Finding("count", not (_is_the_sum(phrase, view) or _is_one_of(parsed, phrase, thing)), k))
    elif phrase.count is not None and thing.count is None and (phrase.count > 1 or thing.plural):
        found.append(Finding("count", phrase.count == 1, k))
    return tuple(found)


def _is_the_sum(phrase: Phrase, view: View) -> bool:
    """ "Two dogs" may be a black dog and a white dog: then the numbers differ and nothing is wrong."""
    if phrase.attrs or phrase.opens:
        return False
    return phrase.count == sum(thing.count or 1 for thing in view.things if heads_agree(phrase, thing))


def _is_one_of(parsed: Parsed, phrase: Phrase, thing: Thing) -> bool:
    """ "A black dog and a white dog" may be "two dogs", of which nothing else is known."""
    if phrase.count != 1 or not _may_hold_several(thing):
        return False
    return thing.count == sum(heads_agree(other, thing) for other in parsed.phrases if other.count in (1, None))


def _may_hold_several(thing: Thing) -> bool:
    return thing.count is not None and thing.count > 1 and not thing.opens and not set(thing.attrs) - {"action"}


def compare_relation(relation: Relation, index: int, view: View, i: int | None, j: int | None) -> Finding | None:
    """Whether the captions bear out that thing i lies so from thing j."""
    if i is None or j is None:
        return None
    signs = view.sides.get((i, j, relation.axis), set())
    if relation.sign in signs:
        return None
    if signs or relation.axis in lex.STRICT_AXES:
        return Finding("relation", bool(signs), relation.subject, relation=index)
    return None


def align(caption: str, view: View, costs: Costs, n: int = 1) -> list[Alignment]:
    """The `n` cheapest assignments of the phrases of `caption` to different things, cheapest first; never empty."""
    return list(_align(caption, view.captions, costs, n))


@lru_cache(maxsize=16384)
def _align(caption: str, captions: tuple[str, ...], costs: Costs, n: int) -> tuple[Alignment, ...]:
    parsed, view = parse(caption), view_of(captions)
    options = [_options(parsed, k, view, costs) for k in range(len(parsed.phrases))]
    floor = [0.0] * (len(options) + 1)
    for k in reversed(range(len(options))):
        floor[k] = floor[k + 1] + options[k][0][0]
    best: list[Alignment] = []
    nodes = 0

    def extend(k: int, chosen: tuple[int | None, ...], findings: tuple[Finding, ...], cost: float) -> None:
        nonlocal nodes
        nodes += 1
        if nodes > _MAX_NODES and best:
            return
        if len(best) >= n and cost + floor[k] >= best[-1].cost:
            return
        if k == len(options):
            best.append(Alignment(chosen, findings, cost))
            best.sort(key=lambda a: a.cost)
            del best[n:]
            return
        for own, i, found in options[k]:
            if i is not None and i in chosen and not _shared(parsed.phrases[k], view.things[i], chosen.count(i)):
                continue
            so_far = (*chosen, i)
            related = _relations_closed_by(parsed, k, so_far, view)
            price = sum(_price(f, costs) for f in related)
            extend(k + 1, so_far, (*findings, *found, *related), cost + own + price)

    extend(0, (), (), 0.0)
    return tuple(best)


def _shared(phrase: Phrase, thing: Thing, holds: int) -> bool:
    return phrase.count == 1 and _may_hold_several(thing) and heads_agree(phrase, thing) and holds < (thing.count or 1)


def _options(parsed: Parsed, k: int, view: View, costs: Costs) -> list[_Option]:
    everything: list[_Option] = []
    for i in [*range(len(view.things)), None]:
        found = compare(parsed, k, view, i)
        same_role = i is None or parsed.phrases[k].role in view.things[i].roles
        everything.append((sum(_price(f, costs, same_role) for f in found), i, found))
    mentions = [-thing.mentions for thing in view.things]  # of equals, what the captions speak of most
    everything.sort(key=lambda option: (option[0], (1, 0) if option[1] is None else (0, mentions[option[1]])))
    agreeing: list[_Option] = []
    others: list[_Option] = []
    for option in everything:
        i = option[1]
        same = i is None or heads_agree(parsed.phrases[k], view.things[i])
        (agreeing if same else others).append(option)
    kept = {option[1] for option in [*agreeing, *others[:_OTHER_HEADS]]}
    return [option for option in everything if option[1] in kept]


def _relations_closed_by(parsed: Parsed, k: int, chosen: tuple[int | None, ...], view: View) -> tuple[Finding, ...]:
    found = []
    for index, relation in enumerate(parsed.relations):
        if max(relation.subject, relation.object) == k:
            finding = compare_relation(relation, index, view, chosen[relation.subject], chosen[relation.object])
            if finding:
                found.append(finding)
    return tuple(found)


def _price(finding: Finding, costs: Costs, same_role: bool = True) -> float:
    if finding.kind == "missing":
        return costs.missing if finding.denied or costs.unknown == costs.denied else costs.unknown
    if finding.kind == "head" and finding.denied:
        return costs.head if same_role else costs.head + costs.role
    return costs.denied if finding.denied else costs.unknown
