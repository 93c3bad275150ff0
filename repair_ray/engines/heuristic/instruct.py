"""States the smallest edit in words: of a caption (`i2t`), or of a picture for an image editor (`t2i`) (ours)."""

from __future__ import annotations

from dataclasses import replace

from repair_ray.engines.heuristic import lexicon as lex
from repair_ray.engines.heuristic.align import Alignment, Costs, Finding, align
from repair_ray.engines.heuristic.edit import caption_edits, changes_of
from repair_ray.engines.heuristic.objects import Thing, View, name_of, view_of
from repair_ray.engines.heuristic.parse import parse
from repair_ray.engines.heuristic.phrases import Parsed, Phrase
from repair_ray.engines.language import Instruction

# A thing that is there is rather changed, however much, than another one added: pictures have only so much room.
_IMAGE_EDIT = Costs(denied=1.0, unknown=1.0, head=1.3, missing=8.0)
_KEEP = "keep everything else unchanged"


def caption_instruction(source: str, captions: tuple[str, ...], max_changes: int) -> Instruction:
    """The nearest edited caption as replacements: `replace 'red' with 'blue' in 'a small red circle'`."""
    edits = caption_edits(source, captions, 1)
    if not edits:
        return Instruction(False, reason="no rewrite of the caption is borne out by the captions of the query image")
    steps, changes = edits[0].steps, edits[0].changes
    if changes > max_changes:
        return Instruction(False, reason=f"the nearest edit needs more than {max_changes} changes")
    clauses = [f"replace '{old}' with '{new}'" if new else f"remove '{old}'" for old, new in steps]
    return Instruction(True, "; ".join(clauses) + f" in '{source}'; {_KEEP}")


def image_instruction(query: str, captions: tuple[str, ...], max_changes: int) -> Instruction:
    """Imperatives that make the image with these captions show `query`.

    `change the X to Y`, `add X` and `move the X left of the Y`, in this order, joined by "; ". Things that the query
    does not name stay.
    """
    parsed, view = parse(query), view_of(captions)
    if not parsed.phrases:
        return Instruction(False, reason="no noun phrase was found in the query")
    if not view.things:
        return Instruction(False, reason="the image has no caption with a noun phrase")
    best = align(query, view, _IMAGE_EDIT)[0]
    if best.supported:
        return Instruction(False, reason="nothing to change: the captions of the image bear out the query")
    changes = changes_of(best)
    if changes > max_changes:
        return Instruction(False, reason=f"the image needs more than {max_changes} changes")
    clauses = _clauses(parsed, view, best)
    if not clauses:
        return Instruction(False, reason="what differs cannot be said as a change of things or of their places")
    return Instruction(True, "; ".join([*clauses, _KEEP]))


def _clauses(parsed: Parsed, view: View, best: Alignment) -> list[str]:
    """What to do, changes first, then additions, then moves, which name the things as they are by then."""
    changed, added, targets = [], [], []
    for k, (phrase, index) in enumerate(zip(parsed.phrases, best.things, strict=True)):
        findings = [f for f in best.findings if f.phrase == k and f.kind != "relation"]
        if index is None:
            target = _stated(phrase, parsed)
            added.append(f"add {name_of(target)}")
        elif findings:
            target = _changed(view.things[index], phrase, findings, parsed)
            changed.append(f"change {name_of(view.things[index], definite=True)} to {name_of(target)}")
        else:
            target = view.things[index]
        targets.append(target)
    return [*changed, *added, *_moves(parsed, best, targets)]


def _moves(parsed: Parsed, best: Alignment, targets: list[Thing]) -> list[str]:
    """Places that do not hold or are not told; new things have no place yet, so theirs are always stated.

    When anything moves, the query's other places are stated too: they are to hold afterwards.
    """
    wrong = {f.relation for f in best.findings if f.kind == "relation"}
    placed = [i for i, r in enumerate(parsed.relations) if r.axis in lex.STRICT_AXES]
    sides = [(best.things[r.subject], best.things[r.object]) for r in parsed.relations]
    needed = placed if any(i in wrong or None in sides[i] for i in placed) else []
    clauses = []
    for i in needed:
        relation = parsed.relations[i]
        subject, anchor = relation.subject, relation.object
        axis_word = lex.RELATION_WORDS[relation.axis, relation.sign]
        if best.things[subject] is not None and best.things[anchor] is None:
            subject, anchor = anchor, subject  # the new thing goes to the old one, not the other way round
            axis_word = lex.RELATION_WORDS[relation.axis, -relation.sign]
        names = name_of(targets[subject], definite=True), name_of(targets[anchor], definite=True)
        clauses.append(f"move {names[0]} {axis_word} {names[1]}")
    return clauses


def _stated(phrase: Phrase, parsed: Parsed) -> Thing:
    """The thing that a phrase asks for, in its own words."""
    thing = Thing(phrase.head, phrase.count, phrase.plural)
    for attr in phrase.attrs:
        thing.attrs.setdefault(attr.cls, {})[attr.value] = parsed.tokens[attr.token].lower
    thing.opens = [word for word, _ in phrase.opens]
    return thing


def _changed(thing: Thing, phrase: Phrase, findings: list[Finding], parsed: Parsed) -> Thing:
    """The thing with what the phrase says otherwise; all else that is known of it stays."""
    wanted = _stated(phrase, parsed)
    attrs, opens = dict(thing.attrs), list(thing.opens)
    actions = {value: word for value, word in attrs.pop("action", {}).items() if value in lex.POSTURES}
    other_noun = any(f.kind == "head" and f.denied for f in findings)
    if actions and not other_noun:
        attrs["action"] = actions
    opens = wanted.opens if other_noun else opens  # a wooden door does not become a wooden dog
    for finding in findings:
        if finding.kind in ("attr", "action"):
            attrs[finding.cls] = wanted.attrs[finding.cls]
        elif finding.kind == "open":
            opens = [*wanted.opens]
    head = wanted.head if any(f.kind == "head" for f in findings) else thing.head
    counts = any(f.kind == "count" for f in findings)
    count = wanted.count if counts else thing.count
    return replace(thing, head=head, attrs=attrs, opens=opens, count=count, plural=(count or 1) > 1 or thing.plural)
