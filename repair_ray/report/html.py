"""HTML pages, the report above all: one file that needs nothing else, written whole or not at all."""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from repair_ray.config import DataConfig
from repair_ray.report import results
from repair_ray.report.collect import collect
from repair_ray.report.pools import size
from repair_ray.run import Run, RunError

REPORT = "report.html"
TEMPLATES = Path(__file__).parent / "templates"
SEARCH = TEMPLATES / "explorer.js"


def write_report(run: Run, summary: dict[str, Any], data: DataConfig) -> Path:
    """Write `report.html` into the run directory and return its path.

    Args:
        summary: what `summary.json` holds; sections that it or the run's tables lack are left out.
        data: the data section, for the background and limits of pictures.

    Raises:
        RunError: the file cannot be written.
    """
    target = run.folder / REPORT
    # The page's policy allows this one script, by its hash, and nothing that data could bring in.
    script = SEARCH.read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    values = collect(run, summary, data) | {"script": Markup(script), "script_hash": f"sha256-{digest}"}
    write_page(target, render(values))
    return target


def write_page(target: Path, text: str) -> None:
    """Write a page whole or not at all. Raises `RunError` where the file cannot be written."""
    page = text.encode("utf-8", "replace")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(page)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RunError(
            f"cannot write {target}: {error.strerror or error}; free space or make the folder writable"
        ) from None


def render(values: dict[str, Any], template: str = "report.html.j2") -> str:
    """A page. Every value is escaped: captions, reasons and file names come from outside."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        points=results.points,
        signed=results.signed,
        between=results.between,
        count=results.count,
        duration=results.duration,
        chance=results.chance,
        size=size,
    )
    return environment.get_template(template).render(values)
