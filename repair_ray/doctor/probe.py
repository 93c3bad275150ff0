"""Asks the interpreter that runs it for versions and imports: `python -c SOURCE PACKAGES IMPORTS`, both as JSON.

It is handed over as text and uses the standard library alone, as the interpreter may have nothing else. The answer is
the last line that it prints.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from importlib import metadata


def ask(packages: list[str], imports: list[str]) -> dict[str, object]:
    """Versions and requirements of the distributions behind `packages` (top-level modules), and what fails to import.

    `versions` maps a module to its version, or to None where it is not installed; `requires` to the requirements of
    its distribution. `failed` maps an import to its error.
    """
    owners = metadata.packages_distributions()
    versions: dict[str, str | None] = {}
    requires: dict[str, list[str]] = {}
    for name in packages:
        if importlib.util.find_spec(name) is None:
            versions[name] = None
            continue
        owner = next(iter(owners.get(name, [])), None)
        versions[name] = metadata.version(owner) if owner else "of unknown version"
        requires[name] = list(metadata.requires(owner) or []) if owner else []
    failed = {}
    for name in imports:
        try:
            importlib.import_module(name)
        # A package that does not fit the others raises nearly anything.
        except BaseException as error:
            failed[name] = f"{type(error).__name__}: {str(error)[:300]}"
    return {"versions": versions, "requires": requires, "failed": failed}


if __name__ == "__main__":
    answer: dict[str, object] = {"python": "{}.{}.{}".format(*sys.version_info)}
    try:
        answer.update(ask(json.loads(sys.argv[1]), json.loads(sys.argv[2])))
    except Exception as problem:
        answer["error"] = f"{type(problem).__name__}: {problem}"
    print("\n" + json.dumps(answer))
