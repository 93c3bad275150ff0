"""Serves pages on this machine's own address, and on no other."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from repair_ray.review.annotations import Annotations, Annotators, check_annotator
from repair_ray.review.task import ReviewTask
from repair_ray.run import RunError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from repair_ray.review.form import FormTask

ADDRESS = "127.0.0.1"
# Called with each annotator (None: where one chooses) and the address of their page.
Tell = Callable[[str | None, str], None]


def serve(task: ReviewTask, folder: Path, annotators: Sequence[str], port: int, tell: Tell) -> None:
    """Serve the page of items with one label each until interrupted.

    Args:
        folder: of the annotations.
        port: 0 for any that is free.

    Raises:
        RunError: a bad name, FastAPI or uvicorn is not installed, the port is taken, or an annotator labels elsewhere.
    """
    for name in annotators:
        check_annotator(name)
    with _needed():
        from repair_ray.review.app import create_app
        from repair_ray.review.fence import new_token
    token = new_token()
    with ExitStack() as stack:
        allowed = [key.label for key in task.keys]
        own = {name: stack.enter_context(Annotations(folder, name, allowed)) for name in annotators}
        _listen(create_app(task, own, token), token, list(own), port, tell)


def serve_form(
    task: FormTask, folder: Path, annotators: Sequence[str], port: int, tell: Tell, *, everything: bool
) -> None:
    """Serve the page of items with several questions each until interrupted; `annotators`: anybody where empty.

    Args:
        everything: show what a machine said of the items, and what others have answered.

    Raises:
        RunError: as `serve`.
    """
    with _needed():
        from repair_ray.review.fence import new_token
        from repair_ray.review.form import ANSWERS, create_form
    token = new_token()
    with Annotators(folder, tuple(ANSWERS), annotators) as own:
        _listen(create_form(task, own, token, everything=everything), token, annotators, port, tell)


@contextmanager
def _needed() -> Iterator[None]:
    """Says how to install what the pages need."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise RunError(f"the review page needs {error.name}: pip install repair_ray[review]") from None


def _listen(app: ASGIApp, token: str, annotators: Sequence[str], port: int, tell: Tell) -> None:
    with _needed():
        import uvicorn
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((ADDRESS, port))
            # Before anybody is told: who comes at once waits for the server, and is not refused.
            listener.listen()
        except OSError as error:
            raise RunError(f"cannot listen on {ADDRESS}:{port}: {error.strerror}; take another --port") from None
        at = f"http://{ADDRESS}:{listener.getsockname()[1]}/{token}"
        for name in annotators:
            tell(name, f"{at}/as/{name}")
        if not annotators:
            tell(None, f"{at}/")
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
