"""Ten accepted edits of known error types, and people who answer about them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from repair_ray import tables
from repair_ray.config import CRITERIA, Config
from repair_ray.repair_review.edits import ANSWERS, accepted_edits
from repair_ray.repair_review.page import EditReview
from repair_ray.review.annotations import Annotators
from repair_ray.run import Recipe, Run
from tests.export.made_run import make_run

OK, WORDS = tables.OK, ("yes", "no", "unsure")
TEN: dict[str, tuple[str, str, str, str, str, str]] = {
    "f0": ("i2t", "A", "B1", "A2", "edited", OK),
    "f1": ("i2t", "A", "B2", "A2", "edited", OK),
    "f2": ("t2i", "A1", "B", "A", "edited", OK),
    "f3": ("t2i", "A1", "C", "A", "edited", OK),
    "f4": ("i2t", "A", "C1", "A2", "edited", OK),
    "f5": ("i2t", "B", "A1", "B1", "edited", OK),
    "f6": ("i2t", "B", "A2", "B1", "edited", OK),
    "f7": ("i2t", "B", "C1", "B1", "edited", OK),
    "f8": ("i2t", "C", "A1", "C1", "edited", OK),
    "f9": ("i2t", "C", "A2", "C1", "edited", OK),
    "paired": ("i2t", "C", "B1", "C1", "paired", OK),
    "too_far": ("i2t", "C", "B2", "C1", "edited", tables.REJECTED),
}
TYPES = {**dict.fromkeys(TEN, ("object",)), "f2": ("attribute",), "f3": ("attribute",)}
TYPES |= {"f8": ("count", "object"), "f9": ("count",)}


def judge(run: Run, types: dict[str, Sequence[str]]) -> None:
    """Verdicts that name these types of errors."""
    rows = run.read("round-1/verdicts").to_pylist()
    for row in rows:
        named = types[row["failure_id"]]
        row["mismatches"] = [{"type": kind, "query": "one", "candidate": "two"} for kind in named]
    table = tables.to_table(rows, tables.VERDICTS.schema)
    run.commit("round-1/verdicts", Recipe({}), tables.VERDICTS, table, 0.0)


@pytest.fixture
def made(tmp_path: Path) -> tuple[Run, Config]:
    """A run of one round with ten accepted edits, a paired counterpart and a rejected edit."""
    run, config = make_run(tmp_path, TEN)
    judge(run, TYPES)
    return run, config


def item_of(run: Run, failure: str, edits: str = "round-1/edits") -> str:
    """The id that an edit is reviewed by."""
    (found,) = (item for item, row in accepted_edits(run, edits).items() if row["failure_id"] == failure)
    return found


def say(run: Run, annotator: str, said: dict[str, str]) -> None:
    """Answers of one annotator: of each failure a letter (y, n, u, or - for none) for each criterion."""
    letters = {word[0]: word for word in WORDS}
    with Annotators(run.path(ANSWERS), WORDS, [annotator]) as own:
        for failure, given in said.items():
            for criterion, letter in zip(CRITERIA, given, strict=True):
                if letter != "-":
                    own.of(annotator).put(f"{item_of(run, failure)}/{criterion}", letters[letter])


@contextmanager
def served(run: Run, config: Config, names: Sequence[str] = (), **options: Any) -> Iterator[str]:
    """The page on this machine; yields its address, with the token."""
    uvicorn = pytest.importorskip("uvicorn", reason="pip install repair_ray[review]")
    from repair_ray.review.form import create_form

    task = EditReview(run, config, 1)
    with Annotators(run.path(ANSWERS), WORDS, names) as own, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        app = create_form(task, own, "secret", **options)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/secret"
        finally:
            server.should_exit = True
            thread.join()
