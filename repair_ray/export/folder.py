"""An output folder that is there whole or not at all."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from repair_ray.run import RunError, write_json

# Written last into every export: what it is, and a sign that it may be overwritten.
MANIFEST = "export.json"


def check_out(out: Path, overwrite: bool) -> None:
    """Whether an export may be written to `out`, looked at before any work is done.

    Raises:
        RunError: it is remote, a file, or a folder that is not empty; with `overwrite`, an earlier export is replaced.
    """
    # A Path holds s3://bucket as s3:/bucket.
    if re.match(r"[\w+.-]{2,}:/", str(out)):
        raise RunError(f"{out}: an export is written to a local folder; copy it from there, or use --push")
    if out.is_dir() and any(out.iterdir()):
        if not overwrite:
            raise RunError(f"{out} is there and not empty; take another folder, or replace it with --overwrite")
        if not (out / MANIFEST).is_file():
            raise RunError(f"{out} holds no {MANIFEST}, so it is no earlier export, and is not overwritten")
    elif out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file; name a folder")


@contextmanager
def whole_folder(out: Path, overwrite: bool, facts: dict[str, Any]) -> Iterator[Path]:
    """A folder to write into, which becomes `out` at the end; a failed or killed export leaves no `out`.

    Until then it is a hidden folder beside it, which a killed process leaves behind.

    `facts`, as they are at the end, go to `export.json`. Raises `RunError` as `check_out`.
    """
    check_out(out, overwrite)
    out = Path(os.path.abspath(out))
    out.parent.mkdir(parents=True, exist_ok=True)
    made = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    try:
        yield made
        write_json(made / MANIFEST, facts)
        _put(made, out)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _put(made: Path, out: Path) -> None:
    if not out.exists():
        made.rename(out)
        return
    aside = out.with_name(f".{out.name}.{os.getpid()}.old")
    out.rename(aside)
    made.rename(out)
    shutil.rmtree(aside, ignore_errors=True)
