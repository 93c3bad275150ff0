"""A server that answers GET alone, as the list of models of an endpoint, and remembers the keys that came."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Reply = Callable[["Handler"], None]


class ModelsServer(ThreadingHTTPServer):
    """`reply` is what happens to each GET; `keys` holds the headers that carried a key."""

    daemon_threads = True

    def __init__(self, reply: Reply) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.reply = reply
        self.paths: list[str] = []
        self.keys: set[str] = set()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    server: ModelsServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        self.server.keys.add(self.headers.get("Authorization", ""))
        self.server.reply(self)

    def send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def lists(*models: str) -> Reply:
    """A list of models, as the OpenAI API gives it."""
    data = [{"id": model, "object": "model", "created": 0, "owned_by": "x"} for model in models]
    return lambda handler: handler.send(200, json.dumps({"object": "list", "data": data}).encode())


def status(code: int) -> Reply:
    """An HTTP error whose body repeats the key that came, as careless servers do."""

    def reply(handler: Handler) -> None:
        message = {"error": {"message": f"no, {handler.headers.get('Authorization')}", "type": "x"}}
        handler.send(code, json.dumps(message).encode())

    return reply


def page(handler: Handler) -> None:
    """A web page with status 200."""
    handler.send(200, f"<html>{handler.headers.get('Authorization')}</html>".encode())


def hangs(handler: Handler) -> None:
    """No answer: it waits until the other side has closed the connection."""
    handler.connection.recv(1)
    handler.close_connection = True
