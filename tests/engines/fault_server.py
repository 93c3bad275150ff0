"""An OpenAI-compatible server that misbehaves on demand, and counts."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = Callable[["Handler", dict[str, Any], int], None]


class FaultServer(ThreadingHTTPServer):
    """Answers `/v1/chat/completions`. `script` maps a word in a question to what happens; `default` to the rest.

    `counts` holds requests by word, `at_once` the most that were open together, `keys` the keys that were sent.
    """

    daemon_threads = True

    def __init__(self, default: str, script: dict[str, Reply] | None = None, delay: float = 0.0) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.default, self.script, self.delay = default, script or {}, delay
        self.counts: Counter[str] = Counter()
        self.bodies: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self.open = self.at_once = 0
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    @property
    def requests(self) -> int:
        return sum(self.counts.values())


class Handler(BaseHTTPRequestHandler):
    server: FaultServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        question = json.dumps(body["messages"][-1]["content"])
        word = next((word for word in self.server.script if word in question), "")
        with self.server.lock:
            self.server.counts[word] += 1
            number = self.server.counts[word]
            self.server.bodies.append(body)
            self.server.keys.add(self.headers.get("Authorization", ""))
            self.server.open += 1
            self.server.at_once = max(self.server.at_once, self.server.open)
        try:
            time.sleep(self.server.delay)
            self.server.script.get(word, says(self.server.default))(self, body, number)
        finally:
            with self.server.lock:
                self.server.open -= 1

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def completion(text: str | None, finish: str = "stop") -> bytes:
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    made = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}
    return json.dumps(made).encode()


def says(text: str | None, finish: str = "stop") -> Reply:
    """The same answer each time."""
    return lambda handler, _, __: handler.send(200, completion(text, finish))


def in_turn(*replies: Reply) -> Reply:
    """One reply after the other; the last one stays."""
    return lambda handler, body, number: replies[min(number, len(replies)) - 1](handler, body, number)


def status(code: int, **headers: str) -> Reply:
    """An HTTP error, whose body repeats the key that came, as careless servers do."""

    def reply(handler: Handler, _: dict[str, Any], __: int) -> None:
        message = {"error": {"message": f"no, {handler.headers.get('Authorization')}", "type": "x"}}
        handler.send(code, json.dumps(message).encode(), **headers)

    return reply


def raw(body: bytes) -> Reply:
    """Any bytes with status 200."""
    return lambda handler, _, __: handler.send(200, body)


def half_closed(handler: Handler, _: dict[str, Any], __: int) -> None:
    """Half an answer, and the connection is gone."""
    body = completion("x" * 500)
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[: len(body) // 2])
    handler.wfile.flush()
    handler.close_connection = True


def slow(seconds: float) -> Reply:
    """An answer that comes too late."""

    def reply(handler: Handler, _: dict[str, Any], __: int) -> None:
        time.sleep(seconds)
        handler.send(200, completion("late"))

    return reply


def until_the_client_goes(handler: Handler, _: dict[str, Any], __: int) -> None:
    """No answer at all: it waits until the other side has closed the connection."""
    handler.connection.recv(1)
    handler.close_connection = True
