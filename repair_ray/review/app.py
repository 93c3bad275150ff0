"""The review page: FastAPI, for people at this machine alone.

Pictures go out by an item's id, decoded and encoded again, never by a path. All that it writes are lines of
annotations.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import jinja2
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import ASGIApp

from repair_ray.data.images import ImageProblem
from repair_ray.review.annotations import Annotations
from repair_ray.review.fence import fenced
from repair_ray.review.task import ReviewTask

HERE = Path(__file__).parent


class Said(BaseModel):
    """A label that somebody gives to an item."""

    model_config = ConfigDict(extra="forbid")

    item: Annotated[str, Field(max_length=64)]
    label: Annotated[str, Field(max_length=32)]


def create_app(task: ReviewTask, annotators: Mapping[str, Annotations], token: str) -> ASGIApp:
    """The page of a task behind the fence, for each annotator at `/<token>/as/<name>`.

    Args:
        annotators: where each one's labels go; these stay open as long as the page is served.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.mount("/static", StaticFiles(directory=HERE / "static"))
    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    places = {item: place for place, item in enumerate(task.items)}

    def of(annotator: str) -> Annotations:
        if annotator not in annotators:
            raise HTTPException(404, "nobody labels under this name here")
        return annotators[annotator]

    def counted(own: Annotations) -> dict[str, Any]:
        return {"done": sum(item in places for item in own.labels), "total": len(places)}

    @app.get("/", response_class=HTMLResponse)
    def names(request: Request) -> str:
        base = request.scope["root_path"]
        return pages.get_template("names.html.j2").render(names=list(annotators), base=base)

    @app.get("/as/{annotator}", response_class=HTMLResponse)
    def page(annotator: str, request: Request) -> str:
        of(annotator)
        base = request.scope["root_path"]
        return pages.get_template("review.html.j2").render(annotator=annotator, task=task, base=base)

    @app.get("/as/{annotator}/items")
    def item(annotator: str, at: int | None = None) -> dict[str, Any]:
        """The item at a place, or the first without a label; the last one where all have one."""
        own = of(annotator)
        if at is None:
            at = next((place for item, place in places.items() if item not in own.labels), len(places) - 1)
        if not 0 <= at < len(places):
            raise HTTPException(404, f"there are {len(places)} items")
        identity = task.items[at]
        shown = task.shown(identity)
        return {
            "at": at,
            "item": identity,
            "text": shown.text,
            "pictures": shown.pictures,
            "label": own.labels.get(identity),
            **counted(own),
        }

    @app.post("/as/{annotator}/labels")
    def label(annotator: str, said: Said) -> dict[str, Any]:
        own = of(annotator)
        if said.item not in places:
            raise HTTPException(404, "no such item")
        try:
            own.put(said.item, said.label)
        except ValueError as error:
            raise HTTPException(422, str(error)) from None
        return counted(own)

    @app.get("/as/{annotator}/pictures/{item}/{number}")
    def picture(annotator: str, item: str, number: int) -> Response:
        of(annotator)
        if item not in places or not 0 <= number < task.shown(item).pictures:
            raise HTTPException(404, "no such picture")
        try:
            image = task.picture(item, number)
        except ImageProblem as problem:
            raise HTTPException(404, problem.reason) from None
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        return Response(buffer.getvalue(), media_type="image/png")

    return fenced(app, token)
