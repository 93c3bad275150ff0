"""Reads edit instructions: English imperatives joined by ";" or "and" (ours).

change the {phrase} to {phrase} | add {phrase} | remove the {phrase} | move the {phrase} {relation} the {phrase}
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from repair_ray.engines.editors import EditError
from repair_ray.world.parsing import Phrase, parse_phrase, parse_relation

_VERBS = "change|replace|add|insert|remove|delete|move|keep|leave"
_SPLIT = re.compile(rf"(?:[;,.]|\band\b|\bthen\b|\s)+(?=(?:{_VERBS})\b)")
_CHANGE = re.compile(r"(?:change (.+?) (?:to|into)|replace (.+?) (?:with|by)) (.+)")
_GRAMMAR = '"change the X to Y", "add X", "remove the X" and "move the X left of/right of/above/below the Y"'


@dataclass(frozen=True)
class Change:
    """Give the group that `old` names what `new` states; what it does not state stays."""

    old: Phrase
    new: Phrase


@dataclass(frozen=True)
class Add:
    """Add a group as `new` states, if given in a relation to the group that `anchor` names."""

    new: Phrase
    relation: str | None = None
    anchor: Phrase | None = None


@dataclass(frozen=True)
class Remove:
    """Remove the group that `old` names."""

    old: Phrase


@dataclass(frozen=True)
class Move:
    """Place the group that `what` names so that `relation` holds between it and the one that `anchor` names."""

    what: Phrase
    relation: str
    anchor: Phrase


Step = Change | Add | Remove | Move


def parse_instruction(text: str) -> list[Step]:
    """Read the steps of an instruction in their order. Raises EditError when there is none or one is not understood."""
    clauses = _SPLIT.split(re.sub(r"\s+", " ", text).lower().strip(" ;,."))
    clauses = [re.sub(r"^(?:please|and|then) ", "", clause).strip(" ;,.") for clause in clauses]
    steps = [_step(clause) for clause in clauses if clause and not re.match(r"(?:keep|leave)\b", clause)]
    if not steps:
        raise EditError(f"the instruction {text!r} asks for no change; use {_GRAMMAR}")
    return steps


def _step(clause: str) -> Step:
    verb, _, rest = clause.partition(" ")
    step: Step | None = None
    if match := _CHANGE.fullmatch(clause):
        old, new = parse_phrase(match[1] or match[2]), parse_phrase(match[3], noun=False)
        step = Change(old, new) if old and new else None
    elif verb in ("add", "insert"):
        if new := parse_phrase(rest):
            step = Add(new)
        elif placed := parse_relation(rest):
            step = Add(*placed)
    elif verb in ("remove", "delete"):
        old = parse_phrase(rest)
        step = Remove(old) if old else None
    elif verb == "move":
        placed = parse_relation(rest)
        step = Move(*placed) if placed else None
    if step is None:
        raise EditError(f"cannot follow {clause!r}: it is not one of {_GRAMMAR} in the words of the world")
    return step
