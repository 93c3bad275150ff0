"""What a summary says, in the order in which people read it; shared by the terminal and the HTML report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from repair_ray import tables

DIRECTIONS = {"i2t": "image → caption", "t2i": "caption → image"}
METRICS = {"r@1": "R@1", "r@5": "R@5", "r@10": "R@10", "mrr": "MRR"}
TRUTH_PERCENT = ("audit_precision", "audit_recall", "edit_validity", "minimality")
CONTROL_LABELS = {
    "vanilla_equal_steps": "vanilla, equal steps",
    "vanilla_equal_compute": "vanilla, equal compute",
    "error_agnostic": "error-agnostic",
    "placement_local": "repair, local only",
    "placement_dispersed": "repair, dispersed only",
    "placement_both": "repair, local and dispersed",
}
NOTHING = "–"


@dataclass(frozen=True)
class System:
    """One retriever of the comparison. `role` is base, control or round; `items` the pictures and texts it encoded."""

    label: str
    role: str
    metrics: dict[str, Any]
    items: int | None

    def value(self, direction: str, metric: str = "r@1") -> float | None:
        value = (self.metrics.get(direction) or {}).get(metric)
        return None if value is None else float(value)

    def interval(self, direction: str) -> tuple[float, float] | None:
        """The 95 % interval of R@1."""
        bounds = (self.metrics.get(direction) or {}).get("r@1_ci")
        return (float(bounds[0]), float(bounds[1])) if bounds else None


@dataclass(frozen=True)
class BadRow:
    """How many rows of a stage were not used for one reason."""

    stage: str
    status: str
    reason: str
    count: int


@dataclass(frozen=True)
class ModelUse:
    """What a stage asked of a model; `latency` is the mean of seconds a call, `cost` None where no price is set."""

    stage: str
    model: str
    questions: int
    calls: int
    input_tokens: int
    output_tokens: int
    latency: float
    cost: float | None


def model_use(summary: dict[str, Any]) -> list[ModelUse]:
    """Each stage that asked a model, in the order of the run."""
    found = ((summary.get("language") or {}).get("products") or {}).items()
    return [
        ModelUse(
            stage=name.removesuffix("_answers"),
            model=str(used.get("model")),
            questions=used.get("questions", 0),
            calls=used["calls"],
            input_tokens=used["input_tokens"],
            output_tokens=used["output_tokens"],
            latency=used["seconds"] / max(1, used["calls"]),
            cost=used.get("cost") or None,
        )
        for name, used in found
    ]


def control_label(name: str) -> str:
    """How people read the name of a control or variant."""
    return CONTROL_LABELS.get(name, name.replace("_", " "))


def systems(summary: dict[str, Any]) -> list[System]:
    """Base, each control, each round, in this order; those without metrics are left out."""
    training = summary.get("training") or {}
    found = [
        System(
            "base",
            "base",
            _metrics(summary.get("base")),
            _encoded(training.get("base/training") or training.get("base")),
        )
    ]
    controls = summary.get("controls") or {}
    for name, control in controls.items():
        found.append(System(control_label(name), "control", _metrics(control), control.get("items")))
    rounds = summary.get("rounds") or []
    strategy = str(summary.get("strategy", "repair"))
    for number, made in enumerate(rounds, start=1):
        label = strategy if len(rounds) == 1 else f"{strategy}, round {number}"
        items = made.get("items") or _encoded_in_round(training, number)
        kept = number <= (summary.get("result") or {}).get("round", number)
        found.append(System(label, "round" if kept else "rolled back", _metrics(made), items))
    return [system for system in found if system.metrics]


def outcome(found: list[System]) -> tuple[System | None, System | None]:
    """The base and the retriever that the run has ended with, where there are such."""
    base = next((system for system in found if system.role == "base"), None)
    rounds = [system for system in found if system.role == "round"]
    return base, rounds[-1] if rounds else None


def difference(after: System | None, before: System | None, direction: str, metric: str = "r@1") -> float | None:
    """Points that `after` is above `before`; None where one was not measured."""
    if after is None or before is None:
        return None
    high, low = after.value(direction, metric), before.value(direction, metric)
    return None if high is None or low is None else high - low


def bad_rows(summary: dict[str, Any]) -> list[BadRow]:
    """Every reject and error by stage and reason, most frequent first.

    A stage counts reasons over all its statuses; a query that has no false positive is none of the bad rows, so it is
    left out where the counts tell it apart.
    """
    found = []
    for stage in summary.get("stages") or []:
        statuses = {name: n for name, n in (stage.get("statuses") or {}).items() if name != tables.OK and n}
        bad = [name for name in statuses if name != tables.NO_FAILURE]
        if bad:
            status = " or ".join(sorted(statuses))
            reasons = stage.get("reasons") or {}
            found += [BadRow(str(stage["name"]), status, str(reason), int(n)) for reason, n in reasons.items()]
    return sorted(found, key=lambda row: (-row.count, row.stage, row.reason))


def truth_measures(made: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Label and value of each measure against the world's truth that a round holds; percent where it is a share."""
    for name, value in (made.get("truth") or {}).items():
        label = name.replace("_", " ")
        parts = value.items() if isinstance(value, dict) else [("", value)]
        for direction, number in parts:
            shown = (
                points(number, 1 if name in TRUTH_PERCENT else 2)
                if name in TRUTH_PERCENT or isinstance(number, float)
                else count(number)
            )
            unit = " %" if name in TRUTH_PERCENT and shown != NOTHING else ""
            yield (f"{label}, {DIRECTIONS.get(direction, direction)}" if direction else label), shown + unit


def protocol_text(protocol: dict[str, Any]) -> str:
    """What figures were measured on, in sentences; facts that are not known are left out."""
    said = []
    if "images" in protocol and "captions" in protocol:
        said.append(f"{count(protocol['images'])} images, {count(protocol['captions'])} captions")
    if each := protocol.get("captions_per_image"):
        said.append(f"captions an image: {each['min']} to {each['max']}, mean {each['mean']:.2f}")
    if "split_hash" in protocol:
        said.append(f"split hash {protocol['split_hash']}")
    if "positives" in protocol:
        said.append(f"right answers: {protocol['positives']}")
    if "ties" in protocol:
        said.append(f"ties: {protocol['ties']}")
    if "map_denominator" in protocol:
        said.append(f"denominator of mAP: {protocol['map_denominator']}")
    if protocol.get("model"):
        said.append(f"model {protocol['model']} in {protocol.get('precision')}")
    if "scores" in protocol:
        said.append(f"scores in {protocol['scores']}")
    return ". ".join(part[0].upper() + part[1:] for part in said) + ("." if said else "")


def recall_text(summary: dict[str, Any]) -> str:
    """What approximate searches found of the exact neighbours, in sentences; empty where all were exact."""
    said = []
    for product, shares in (summary.get("approximate_search") or {}).items():
        found = ", ".join(f"{DIRECTIONS.get(d, d).lower()} {points(100 * share)} %" for d, share in shares.items())
        said.append(f"{product} was mined by an approximate search, which finds of the exact neighbours: {found}.")
    return " ".join(said)


def points(value: float | None, digits: int = 1) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"


def signed(value: float | None) -> str:
    return NOTHING if value is None else f"{value:+.1f}".replace("-", "−")


def between(bounds: tuple[float, float] | None) -> str:
    return NOTHING if bounds is None else f"{bounds[0]:.1f}–{bounds[1]:.1f}"


def count(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"


def chance(p: float) -> str:
    """A p-value as people read it: `0.021`, `< 0.001`."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def duration(seconds: float) -> str:
    """`4.2 s`, `3 min 05 s`, `2 h 10 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _metrics(holder: dict[str, Any] | None) -> dict[str, Any]:
    return (holder or {}).get("metrics") or {}


def _encoded(record: dict[str, Any] | None) -> int | None:
    return (record or {}).get("items_encoded")


def _encoded_in_round(training: dict[str, Any], number: int) -> int | None:
    own = [r["items_encoded"] for name, r in training.items() if name.split("/")[0] == f"round-{number}"]
    return sum(own) if own else None
