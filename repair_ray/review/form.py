"""The page of a form: items that each get an answer to every one of several questions.

Items are shown by their task as markup that it has escaped; all else that comes from outside is escaped here. All that
the page writes are lines of annotations, one an answer, whose item is `<item>/<question>`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import jinja2
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles
from markupsafe import Markup
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import ASGIApp

from repair_ray.review.annotations import Annotations, Annotators
from repair_ray.review.fence import fenced
from repair_ray.run import RunError

HERE = Path(__file__).parent
# Each with the key that gives it.
ANSWERS = {"yes": "y", "no": "n", "unsure": "u"}


@dataclass(frozen=True)
class Question:
    """One question about every item: `name` is what its answers are kept by, `means` says when it is answered yes."""

    name: str
    asks: str
    means: str


class FormTask(Protocol):
    """Items to answer questions about, in the order in which everybody sees them."""

    @property
    def title(self) -> str:
        """What is looked at."""
        ...

    @property
    def questions(self) -> Sequence[Question]:
        """What is asked of each item."""
        ...

    @property
    def items(self) -> Sequence[str]:
        """Ids, in order."""
        ...

    def shown(self, item: str, *, everything: bool) -> Markup:
        """An item as markup; with `everything`, also what a machine said of it."""
        ...


class Answered(BaseModel):
    """An answer that somebody gives."""

    model_config = ConfigDict(extra="forbid")

    item: Annotated[str, Field(max_length=64)]
    question: Annotated[str, Field(max_length=32)]
    answer: Annotated[str, Field(max_length=32)]


def key_of(item: str, question: str) -> str:
    """What the answer to a question about an item is kept by."""
    return f"{item}/{question}"


def answers_of(labels: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The labels of one annotator as `{item: {question: answer}}`."""
    found: dict[str, dict[str, str]] = {}
    for key, answer in labels.items():
        item, _, question = key.rpartition("/")
        found.setdefault(item, {})[question] = answer
    return found


def create_form(task: FormTask, annotators: Annotators, token: str, *, everything: bool = False) -> ASGIApp:
    """The pages of a task behind the fence, for each annotator below `/<token>/as/<name>`.

    Args:
        everything: show what a machine said of the items, and what others have answered.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.mount("/static", StaticFiles(directory=HERE / "static"))
    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names = [question.name for question in task.questions]
    known = set(task.items)

    @app.exception_handler(RunError)
    def cannot(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 409)

    def of(annotator: str) -> Annotations:
        try:
            return annotators.of(annotator)
        except KeyError:
            raise HTTPException(404, "nobody answers under this name here") from None

    def whole(own: Annotations) -> list[bool]:
        """Whether all questions about each item have an answer."""
        return [all(key_of(item, name) in own.labels for name in names) for item in task.items]

    @app.get("/", response_class=HTMLResponse)
    def choose(request: Request) -> str:
        values = {"names": annotators.names, "anybody": annotators.anybody, "title": task.title}
        return pages.get_template("choose.html.j2").render(**values, base=request.scope["root_path"])

    @app.get("/as/{annotator}")
    def begin(annotator: str, request: Request) -> RedirectResponse:
        """The first item that lacks an answer, or the last one."""
        done = whole(of(annotator))
        at = done.index(False) if False in done else len(done) - 1
        return RedirectResponse(f"{request.scope['root_path']}/as/{annotator}/at/{at + 1}", status_code=303)

    @app.get("/as/{annotator}/at/{number}", response_class=HTMLResponse)
    def page(annotator: str, number: int, request: Request) -> str:
        own = of(annotator)
        if not 1 <= number <= len(task.items):
            raise HTTPException(404, f"there are {len(task.items)} items")
        item, done = task.items[number - 1], whole(own)
        others = annotators.others(annotator) if everything else {}
        after = [(number + step - 1) % len(done) + 1 for step in range(1, len(done))]
        values = {
            "base": request.scope["root_path"],
            "annotator": annotator,
            "title": task.title,
            "item": item,
            "number": number,
            "total": len(done),
            "done": sum(done),
            "next_open": next((place for place in after if not done[place - 1]), None),
            "shown": task.shown(item, everything=everything),
            "everything": everything,
            "keys": ANSWERS,
            "questions": [
                {
                    "question": question,
                    "answer": own.labels.get(key_of(item, question.name)),
                    "others": [
                        (name, labels[key_of(item, question.name)])
                        for name, labels in others.items()
                        if key_of(item, question.name) in labels
                    ],
                }
                for question in task.questions
            ],
        }
        return pages.get_template("form.html.j2").render(**values)

    @app.post("/as/{annotator}/answers")
    def answer(annotator: str, given: Answered) -> dict[str, Any]:
        own = of(annotator)
        if given.item not in known or given.question not in names:
            raise HTTPException(404, "no such item or question")
        try:
            own.put(key_of(given.item, given.question), given.answer)
        except ValueError as error:
            raise HTTPException(422, str(error)) from None
        except OSError as error:
            raise HTTPException(507, error.strerror or "it cannot be written") from None
        return {"done": sum(whole(own)), "total": len(known)}

    return fenced(app, token)
