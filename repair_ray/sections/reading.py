"""Reading settings: YAML in, `key=value` overrides, and errors that name the key."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from repair_ray.plugins import TERMS, offered
from repair_ray.sections.base import Section
from repair_ray.sections.objective import ObjectiveConfig

# A plain value of these sections is short for this key of theirs.
SHORT = {"rounds": "number"}

S = TypeVar("S", bound=Section)


class ConfigError(Exception):
    """A setting is wrong. The message names the key, the value, and what is allowed."""


def load_section(kind: type[S], path: str | Path, overrides: list[str] | None = None) -> S:
    """Read a YAML file and apply `key=value` overrides (`training.lr=1e-4`; values are YAML).

    Raises:
        ConfigError: the file is missing or no mapping, an override is malformed, or a setting is wrong.
    """
    path = Path(path)
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"no config file at {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the config {path}: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} must hold a mapping of settings, not {type(tree).__name__}")
    for override in overrides or []:
        _apply(tree, override)
    return parse_section(kind, tree, source=str(path))


def parse_section(kind: type[S], tree: dict[str, Any], source: str = "config") -> S:
    """Validate a nested mapping; raises `ConfigError` that lists every wrong key."""
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        lines = [explain(problem, kind) for problem in error.errors()]
        raise ConfigError(f"{source}: " + "; ".join(lines)) from None


def _apply(tree: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key:
        raise ConfigError(f"override {override!r} is not of the form key=value")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"override {override!r}: the value is not YAML: {error}") from None
    if isinstance(value, str):
        value = _number(value)
    *parents, leaf = key.split(".")
    if key in SHORT and not isinstance(value, dict | None):
        parents, leaf = [key], SHORT[key]
    node = tree
    for parent in parents:
        child = node.setdefault(parent, {})
        if parent in SHORT and node is tree and not isinstance(child, dict | None):
            child = {SHORT[parent]: child}
        node[parent] = child = {} if child is None else child
        if not isinstance(child, dict):
            raise ConfigError(f"override {override!r}: {parent} is a value, not a section")
        node = child
    node[leaf] = value


def merged(tree: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The tree with changes, section by section; a value that is no section takes the old one's place."""
    found = dict(tree)
    for key, value in changes.items():
        old = found.get(key)
        found[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return found


def _number(text: str) -> str | float:
    # YAML 1.1 reads 1e-4 as text, which nobody who types training.lr=1e-4 means.
    try:
        return float(text) if "e" in text.lower() else text
    except ValueError:
        return text


def explain(problem: Any, kind: type[BaseModel]) -> str:
    location = [str(part) for part in problem["loc"]]
    key = ".".join(location) or "config"
    if problem["type"] == "extra_forbidden":
        known = _keys_at(location[:-1], kind)
        close = difflib.get_close_matches(location[-1], known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; known keys here: {', '.join(known)}"
        return f"unknown key {key!r}{hint}"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        # Most name their key; those of a section that stands in several places cannot.
        return message if not location or location[-1] in message else f"{key}: {message}"
    return f"{key}={problem.get('input')!r}: {message[0].lower()}{message[1:]}"


def _keys_at(location: list[str], model: type[BaseModel]) -> list[str]:
    for part in location:
        if part.isdecimal():  # a place in a list of sections
            continue
        field = model.model_fields.get(part)
        options = get_args(field.annotation) or (field.annotation,) if field else ()
        sections = [option for option in options if isinstance(option, type) and issubclass(option, BaseModel)]
        if not sections:
            return []
        model = sections[0]
    added = offered(TERMS) if model is ObjectiveConfig else ()
    return sorted([*model.model_fields, *added])
