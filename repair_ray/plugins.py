"""What other packages add to a run: image editors, judges, strategies and terms, found by entry point (ours).

A package declares a class under the group of its kind, and the config names it by the key that names the built-in ones:

    [project.entry-points."repair_ray.judges"]
    strict = "acme.judging:StrictJudge"

A class may have a `Settings`, a pydantic model; it is made as `StrictJudge(settings)`, with the settings that were read
by that model, or with a plain mapping where it has none. What else it is given and what it must offer is said by the
protocol of its kind: `engines.editors.ImageEditor`, `engines.language.Judge`, `engines.strategies.Strategy`,
`training.objective.Term`. Built-in names are never taken over.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pydantic import BaseModel, ValidationError


class PluginError(ValueError):
    """A plugin is not there, does not load, lacks something, or has wrong settings; the message names its package."""


@dataclass(frozen=True)
class Kind:
    """A kind of plugin: what people call it, its entry-point group, the built-in names, what a class must offer."""

    word: str
    group: str
    builtin: tuple[str, ...]
    needs: tuple[str, ...]


EDITORS = Kind(
    "image editor",
    "repair_ray.editors",
    ("none", "scene", "flux2-klein", "flux2-klein-9b", "flux2", "flux-kontext", "instruct-pix2pix"),
    ("edit",),
)
JUDGES = Kind("judge", "repair_ray.judges", ("heuristic", "vllm", "openai"), ("audit",))
STRATEGIES = Kind(
    "strategy",
    "repair_ray.strategies",
    ("repair", "vanilla", "mined", "error_agnostic", "negclip", "san", "paraphrase", "triplet"),
    ("works_on", "drafts"),
)
TERMS = Kind(
    "term",
    "repair_ray.terms",
    ("soft_labels", "intra_modal", "fine_grained", "positive_mixing", "hard_negative_mixing", "distill"),
    ("__call__",),
)
KINDS = (EDITORS, JUDGES, STRATEGIES, TERMS)


def offered(kind: Kind) -> dict[str, list[EntryPoint]]:
    """The entry points of a kind by name; more than one where several packages take the same name."""
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=kind.group):
        found.setdefault(point.name, []).append(point)
    return dict(sorted(found.items()))


def check_name(kind: Kind, name: str) -> str:
    """The name, where it is that of something built in or of one package.

    Raises:
        PluginError: nothing has that name (the message lists what there is), or several packages have.
    """
    if name not in kind.builtin:
        _point(kind, name)
    return name


def load(kind: Kind, name: str) -> type[Any]:
    """The class of a plugin.

    Raises:
        PluginError: as `check_name`; or it cannot be imported, is no class, or lacks what its kind must offer.
    """
    point = _point(kind, name)
    whose = f"{kind.word} {name!r} of {package_of(point)} ({point.value})"
    try:
        made = point.load()
    except Exception as error:  # a package may fail in any way while it is imported
        raise PluginError(f"the {whose} cannot be imported: {type(error).__name__}: {error}") from error
    if not isinstance(made, type):
        raise PluginError(f"the {whose} is {type(made).__name__!r}, and must be a class")
    lacking = [need for need in kind.needs if not any(need in vars(base) for base in made.__mro__)]
    if lacking:
        raise PluginError(f"the {whose} has no {' and no '.join(lacking)}, which each {kind.word} must have")
    return made


def read_settings(kind: Kind, name: str, tree: dict[str, Any]) -> Any:
    """A plugin's settings, read by its `Settings` where it has one; of what is built in the mapping, which is empty.

    Raises:
        PluginError: as `load`; or a setting is wrong, which the message names; or what is built in was given some.
    """
    if name in kind.builtin:
        if tree:
            raise PluginError(f"{', '.join(tree)}: {name} is built in, and has its settings elsewhere; take these out")
        return tree
    model = getattr(load(kind, name), "Settings", None)
    if model is None:
        return tree
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise PluginError(f"the Settings of the {kind.word} {name!r} are no pydantic model: tell {_whose(kind, name)}")
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise PluginError("; ".join(_problem(problem, model) for problem in error.errors())) from None


def identity(kind: Kind, name: str) -> dict[str, dict[str, str]]:
    """What a product's recipe says of the plugin that makes it, as `plugin`; empty for what is built in."""
    if name in kind.builtin:
        return {}
    point = _point(kind, name)
    package, version = (point.dist.name, point.dist.version) if point.dist else (point.module, "unknown")
    return {"plugin": {"name": name, "package": package, "version": version}}


def package_of(point: EntryPoint) -> str:
    """The package that offers an entry point, with its version."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.module


def _point(kind: Kind, name: str) -> EntryPoint:
    known = offered(kind)
    found = known.get(name, [])
    if len(found) == 1:
        return found[0]
    if found:
        packages = " and ".join(sorted(package_of(point) for point in found))
        raise PluginError(f"{packages} both offer the {kind.word} {name!r}: uninstall all of them but one")
    others = [f"{other} (of {package_of(points[0])})" for other, points in known.items()]
    have = ", ".join([*kind.builtin, *others])
    raise PluginError(f"there is no {kind.word} {name!r}; there are {have}. Others come with packages ({kind.group})")


def _whose(kind: Kind, name: str) -> str:
    return package_of(_point(kind, name))


def _problem(problem: Any, model: type[BaseModel]) -> str:
    key = ".".join(map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden":
        return f"unknown key {key!r}; known keys here: {', '.join(sorted(model.model_fields)) or 'none'}"
    if problem["type"] == "missing":
        return f"{key} is not set"
    message = problem["msg"].removeprefix("Value error, ")
    if not key:
        return str(message)
    return f"{key}={problem.get('input')!r}: {message[0].lower()}{message[1:]}"
