"""KubeRay's own schemas for our manifests, made strict: Kubernetes drops unknown keys, and says nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "cluster"
SHARED = Path(os.environ.get("REPAIR_RAY_SHARED_DATA", ROOT.parent / "shared" / "data")) / "kuberay"


def documents(name: str) -> dict[str, Any]:
    """The documents of a manifest, by kind."""
    return {document["kind"]: document for document in yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8"))}


def validator(plural: str) -> Draft202012Validator:
    """Of the custom resource definition of KubeRay, version v1; skips where it is absent."""
    path = SHARED / f"ray.io_{plural}.yaml"
    if not path.exists():
        pytest.skip(f"{path} is absent (set REPAIR_RAY_SHARED_DATA)")
    # The definitions have a megabyte: libyaml reads them in a second.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with path.open(encoding="utf-8") as file:
        definition = yaml.load(file, loader)
    version = next(one for one in definition["spec"]["versions"] if one["name"] == "v1")
    return Draft202012Validator(strict(version["schema"]["openAPIV3Schema"]))


def strict(schema: Any) -> Any:
    """The schema with every object closed that names its properties, and numbers where Kubernetes takes either."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict(value) for key, value in schema.items()}
    if closed.get("x-kubernetes-int-or-string"):
        closed.pop("type", None)
        closed["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    named = isinstance(closed.get("properties"), dict) and closed.get("type") == "object"
    if named and "additionalProperties" not in closed and not closed.get("x-kubernetes-preserve-unknown-fields"):
        closed["additionalProperties"] = False
    return closed


def problems(validator: Draft202012Validator, document: dict[str, Any]) -> list[str]:
    """What the schema finds wrong, with its place."""
    return [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(document)]


def pods(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The head and the worker groups of a cluster's spec, by name."""
    return {"head": spec["headGroupSpec"], **{group["groupName"]: group for group in spec["workerGroupSpecs"]}}


def quantity(text: str | int) -> float:
    """Bytes, or CPUs, of a Kubernetes quantity."""
    units = {"m": 1e-3, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
    for unit, factor in units.items():
        if isinstance(text, str) and text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    return float(text)
