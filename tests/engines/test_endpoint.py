"""The endpoint client against a server with every fault that such servers have."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from repair_ray.config import LanguageConfig
from repair_ray.engines.answers import Answered
from repair_ray.engines.endpoint import Endpoint, Question
from repair_ray.engines.tasks import AnswerError
from tests.engines.fault_server import FaultServer, Reply, half_closed, in_turn, raw, says, slow, status

KEY = "sk-very-secret-1234"
GOOD = '{"fine": true}'


def check(text: str) -> None:
    try:
        json.loads(text)
    except ValueError:
        raise AnswerError("no JSON") from None


@pytest.fixture
def servers() -> Iterator[list[FaultServer]]:
    made: list[FaultServer] = []
    yield made
    for server in made:
        server.shutdown()
        server.server_close()


def ask(
    server: FaultServer, *words: str, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> list[tuple[Answered, bool]]:
    monkeypatch.setenv("MY_KEY", KEY)
    # The client's own back-off, without its waiting.
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.02)
    endpoint = {"url": server.url, "key_variable": "MY_KEY", "at_once": 8, "retries": 2, "timeout_s": 5.0, **settings}
    language = LanguageConfig.model_validate(
        {"backend": "openai", "model": "m", "max_tokens": 64, "seed": 5, "endpoint": endpoint}
    )

    async def run() -> list[tuple[Answered, bool]]:
        endpoint = Endpoint(language)
        questions = [Question(word, "system", f"about {word}", (), "answer", {"type": "object"}) for word in words]
        return await asyncio.gather(*(endpoint.ask(question, check) for question in questions))

    return asyncio.run(run())


FAULTS: dict[str, tuple[Reply, str, bool, int, str | None]] = {
    # what happens: (status, final, requests, reason)
    "good": (says(GOOD), "ok", True, 1, None),
    "busy": (in_turn(status(429, Retry_After="0"), status(503), says(GOOD)), "ok", True, 3, None),
    "always-busy": (status(429), "error", False, 3, "endpoint: HTTP 429"),
    "ill": (status(500), "error", False, 3, "endpoint: HTTP 500"),
    "refused": (status(400), "error", True, 1, "endpoint: HTTP 400"),
    "forbidden": (status(401), "error", False, 1, "endpoint: HTTP 401"),
    "half": (in_turn(half_closed, says(GOOD)), "ok", True, 2, None),
    "always-half": (half_closed, "error", False, 3, "endpoint: connection failed"),
    "late": (slow(6.0), "error", False, 3, "endpoint: no answer in time"),
    "page": (raw(b"<html>gateway</html>"), "error", False, 1, "endpoint: its reply is no JSON"),
    "nothing": (raw(b"{}"), "error", True, 2, "no JSON"),
    "null": (says(None), "error", True, 2, "no JSON"),
    "prose": (in_turn(says("Sure!"), says(GOOD)), "ok", True, 2, None),
    "always-prose": (says("Sure!"), "error", True, 2, "no JSON"),
    "cut": (says(GOOD, finish="length"), "error", True, 2, "cut at max_tokens"),
}


def test_every_fault_ends_in_its_status(servers: list[FaultServer], monkeypatch: pytest.MonkeyPatch) -> None:
    server = FaultServer(GOOD, {f"about {word}": fault[0] for word, fault in FAULTS.items()})
    servers.append(server)
    # Longest words first: "always-busy" holds "busy".
    server.script = dict(sorted(server.script.items(), key=lambda item: -len(item[0])))
    answers = ask(server, *FAULTS, monkeypatch=monkeypatch, timeout_s=3.0)
    for (word, (_, wanted, final, requests, reason)), (answer, is_final) in zip(FAULTS.items(), answers, strict=True):
        assert (answer.question_id, answer.status, is_final) == (word, wanted, final), (word, answer)
        assert server.counts[f"about {word}"] == requests, word
        assert (answer.reason or "").startswith(reason or ""), (word, answer.reason)
        assert KEY not in repr(answer)
    assert server.keys == {f"Bearer {KEY}"}


def test_calls_and_tokens_of_both_tries_are_counted(
    servers: list[FaultServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = {"about a": in_turn(status(500), says("prose"), status(429), says(GOOD)), "about b": says(GOOD)}
    servers.append(FaultServer(GOOD, script))
    (first, _), (second, _) = ask(servers[0], "a", "b", monkeypatch=monkeypatch)
    assert (first.calls, first.input_tokens, first.output_tokens) == (4, 14, 10)
    assert (second.calls, second.input_tokens, second.output_tokens) == (1, 7, 5)
    sent = [body for body in servers[0].bodies if "about a" in body["messages"][1]["content"]]
    assert [body["seed"] for body in sent] == [5, 5, 6, 6], "what could not be read is asked with another seed"
    assert [body["temperature"] for body in sent] == [0, 0, 0.5, 0.5]


def test_what_is_sent(servers: list[FaultServer], monkeypatch: pytest.MonkeyPatch) -> None:
    servers.append(FaultServer(GOOD))
    for form, key in (("json_schema", "json_schema"), ("json_object", "json_object"), ("text", None)):
        ask(servers[0], form, monkeypatch=monkeypatch, form=form, extra={"top_k": 3})
        body = servers[0].bodies[-1]
        assert (body.get("response_format") or {}).get("type") == key
        assert body["top_k"] == 3 and body["max_tokens"] == 64 and body["temperature"] == 0.0
        assert [message["role"] for message in body["messages"]] == ["system", "user"]


def test_requests_in_flight_and_their_rate_are_bounded(
    servers: list[FaultServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    servers.append(FaultServer(GOOD, delay=0.05))
    words = [f"w{number}" for number in range(12)]
    ask(servers[0], *words, monkeypatch=monkeypatch, at_once=3)
    assert servers[0].at_once == 3
    begun = time.monotonic()
    # 300 a minute are one each 0.2 s: the seventh starts 1.2 s after the first.
    ask(servers[0], *words[:7], monkeypatch=monkeypatch, per_minute=300, at_once=8)
    assert time.monotonic() - begun >= 1.2
    assert servers[0].requests == 19


def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    server = FaultServer(GOOD)
    server.shutdown()
    server.server_close()
    ((answer, final),) = ask(server, "a", monkeypatch=monkeypatch)
    assert answer.status == "error" and not final
    assert str(answer.reason).startswith("endpoint: connection failed")
