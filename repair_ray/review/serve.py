"""Serves the review page on this machine's own address, and on no other."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from repair_ray.review.annotations import Annotations, check_annotator
from repair_ray.review.task import ReviewTask
from repair_ray.run import RunError

ADDRESS = "127.0.0.1"


def serve(
    task: ReviewTask, folder: Path, annotators: Sequence[str], port: int, tell: Callable[[str, str], None]
) -> None:
    """Serve until interrupted.

    Args:
        folder: of the annotations.
        port: 0 for any that is free.
        tell: called with each annotator and the address of their page.

    Raises:
        RunError: a bad name, FastAPI or uvicorn is not installed, the port is taken, or an annotator labels elsewhere.
    """
    for name in annotators:
        check_annotator(name)
    try:
        import uvicorn

        from repair_ray.review.app import create_app
    except ModuleNotFoundError as error:
        raise RunError(f"the review page needs {error.name}: pip install repair_ray[review]") from None
    with ExitStack() as stack:
        allowed = [key.label for key in task.keys]
        own = {name: stack.enter_context(Annotations(folder, name, allowed)) for name in annotators}
        listener = stack.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((ADDRESS, port))
            # Before anybody is told: who comes at once waits for the server, and is not refused.
            listener.listen()
        except OSError as error:
            raise RunError(f"cannot listen on {ADDRESS}:{port}: {error.strerror}; take another --port") from None
        for name in own:
            tell(name, f"http://{ADDRESS}:{listener.getsockname()[1]}/as/{name}")
        uvicorn.Server(uvicorn.Config(create_app(task, own), log_level="warning")).run(sockets=[listener])
