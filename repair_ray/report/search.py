"""What `search` has found: a table for the terminal, and a page with the pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from repair_ray.config import DataConfig
from repair_ray.report.html import render, write_page
from repair_ray.report.pictures import Pictures, data_uri
from repair_ray.run import Run

PAGE = "search.html"


def search_table(facts: dict[str, Any]) -> Table:
    """The retrievers side by side, a rank a row; right items are marked."""
    retrievers = facts["retrievers"]
    what = "images" if facts["direction"] == "t2i" else "captions"
    table = Table(caption=f"{facts['n']} {what} of split {facts['split']}; ✓ is right", show_lines=True)
    table.add_column("", justify="right")
    for retriever in retrievers:
        table.add_column(retriever["name"], ratio=1, overflow="fold")
    for rank in range(max(len(retriever["hits"]) for retriever in retrievers)):
        table.add_row(str(rank + 1), *(_cell(retriever["hits"], rank) for retriever in retrievers))
    return table


def write_search(run: Run, facts: dict[str, Any], data: DataConfig, target: Path) -> Path:
    """Write the page of a search and return its path. Raises `RunError` where it cannot be written."""
    pictures = Pictures(run, data)
    asked = facts["query"].get("picture")
    retrievers = [
        {
            **retriever,
            "hits": [{**hit, "picture": pictures.of(hit, hit["text"] or hit["source"])} for hit in retriever["hits"]],
        }
        for retriever in facts["retrievers"]
    ]
    query = {"text": facts["query"].get("text"), "src": data_uri(pictures.open(asked)) if asked else None}
    page = render({**facts, "name": run.folder.name, "query": query, "retrievers": retrievers}, "search.html.j2")
    write_page(target, page)
    return target


def _cell(hits: list[dict[str, Any]], place: int) -> RenderableType:
    if place >= len(hits):
        return ""
    hit = hits[place]
    mark = ("✓ ", "green") if hit["right"] else ("  ", "")
    source = (hit["source"] or "").rpartition("/")[2]
    return Text.assemble(mark, (f"{hit['score']:.3f} ", "bold"), hit["text"] or "", (f"\n  {source}", "dim"))
