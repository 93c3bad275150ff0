"""What the doctor says of an endpoint, against real servers. The key stands in no finding."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from repair_ray.config import LanguageConfig
from repair_ray.doctor.endpoint import check_endpoint
from repair_ray.report.findings import Finding
from tests.doctor.models_server import ModelsServer, Reply, hangs, lists, page, status

KEY = "sk-very-secret-1234"


@pytest.fixture
def serve() -> Iterator[Callable[[Reply], ModelsServer]]:
    made: list[ModelsServer] = []

    def start(reply: Reply) -> ModelsServer:
        made.append(ModelsServer(reply))
        return made[-1]

    yield start
    for server in made:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)


def check(url: str, timeout: float = 5.0, **endpoint: Any) -> Finding:
    settings = {"url": url, "key_variable": "MY_KEY", **endpoint}
    language = LanguageConfig.model_validate({"backend": "openai", "model": "judge-8b", "endpoint": settings})
    finding = check_endpoint("audit.language", language, timeout)
    assert KEY not in repr(finding)
    assert finding.check == "endpoint of audit.language"
    return finding


@pytest.mark.parametrize(
    ("reply", "state", "found", "advice"),
    [
        (lists("other", "judge-8b"), "ok", "serves judge-8b (with the key of MY_KEY)", ""),
        (lists("a", "b"), "failed", "judge-8b is not among its models: a, b", "set audit.language.model"),
        (lists(*"abcdefg"), "failed", "a, b, c, d, e and 2 more", "set audit.language.model"),
        (lists(), "warning", "it lists none", "set audit.language.model"),
        (status(401), "failed", "HTTP 401: who asks is not known (with the key of MY_KEY)", "set MY_KEY"),
        (status(403), "failed", "HTTP 403: the key may not do this", "set MY_KEY"),
        (status(404), "warning", "lists no models (HTTP 404", "ends in /v1"),
        (status(500), "failed", "HTTP 500", "the server's log"),
        (page, "failed", "its answer is not a list of models", "correct audit.language.endpoint.url"),
        (lambda handler: handler.send(200, b'["x"]'), "failed", "its answer is not a list of models", "url"),
    ],
    ids=["served", "not served", "many", "none", "401", "403", "404", "500", "a page", "a list"],
)
def test_answers(serve: Callable[[Reply], ModelsServer], reply: Reply, state: str, found: str, advice: str) -> None:
    server = serve(reply)
    finding = check(server.url)
    assert finding.state == state
    assert finding.found.startswith(server.url) and found in finding.found
    assert advice in finding.advice
    assert server.paths == ["/v1/models"], "asked once"
    assert server.keys == {f"Bearer {KEY}"}


def test_a_server_that_hangs(serve: Callable[[Reply], ModelsServer]) -> None:
    finding = check(serve(hangs).url, timeout=0.3)
    assert finding.state == "failed" and "no answer within 0.3 s" in finding.found
    # The run's own limit counts where it is shorter.
    assert "no answer within 0.2 s" in check(serve(hangs).url, timeout=0.3, timeout_s=0.2).found


def test_nothing_listens() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}/v1"
    finding = check(url)
    assert finding.state == "failed" and f"{url}: cannot be reached" in finding.found
    assert "start the server" in finding.advice


def test_a_key_that_is_not_set(serve: Callable[[Reply], ModelsServer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_KEY")
    # A server of one's own asks for none.
    assert check(serve(lists("judge-8b")).url).state == "ok"
    refused = check(serve(status(401)).url)
    assert refused.state == "failed" and "without a key, as MY_KEY is not set here" in refused.found


def test_a_password_in_the_address_is_not_shown(serve: Callable[[Reply], ModelsServer]) -> None:
    server = serve(lists("judge-8b"))
    finding = check(server.url.replace("://", "://me:hidden@"))
    assert "hidden" not in repr(finding)
    assert server.paths == ["/v1/models"]
