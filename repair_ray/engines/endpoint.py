"""Questions to an OpenAI-compatible endpoint: many at once, within a rate, each asked until it is answered or hopeless.

Retries of a request (429, 408, 409, 5xx, a broken connection, a time-out; with back-off, and with what `Retry-After`
says) are the openai client's own. An answer that cannot be used is asked for once more, with another seed and some
temperature.
"""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import openai
from aiolimiter import AsyncLimiter

from repair_ray.config import LanguageConfig
from repair_ray.engines.answers import FAILED, Answered, second_try

# What a client without a key sends; servers of one's own ask for none.
NO_KEY = "none"


@dataclass(frozen=True)
class Question:
    """One question, ready to be sent. `images` are encoded pictures; `schema` is that of the answer."""

    question_id: str
    system: str
    user: str
    images: tuple[bytes, ...]
    schema_name: str
    schema: dict[str, Any]


class Endpoint:
    """The endpoint of `language`, within its limits. Use from one event loop only.

    The key is read from the environment variable that the config names; it is in no config, log or answer.
    """

    def __init__(self, language: LanguageConfig) -> None:
        limits = language.endpoint
        self._language = language
        self._key = os.environ.get(limits.key_variable) or NO_KEY
        self._client = openai.AsyncOpenAI(
            base_url=limits.url, api_key=self._key, max_retries=limits.retries, timeout=limits.timeout_s
        )
        self._slots = asyncio.Semaphore(limits.at_once)
        self._rate = AsyncLimiter(1, 60 / limits.per_minute) if limits.per_minute else None

    async def ask(self, question: Question, check: Callable[[str], object]) -> tuple[Answered, bool]:
        """The answer, and whether it is final: what failed for the endpoint's sake may be asked again in another run.

        `check` raises `AnswerError` for a text that cannot be used.
        """
        async with self._slots:
            first, final = await self._once(question, check, self._language)
            if first.status != FAILED or not final or first.text is None:
                return first, final
            second, final = await self._once(question, check, second_try(self._language))
            return second.after(first), final

    async def _once(
        self, question: Question, check: Callable[[str], object], language: LanguageConfig
    ) -> tuple[Answered, bool]:
        if self._rate:
            await self._rate.acquire()
        begun = time.monotonic()
        try:
            raw = await self._client.chat.completions.with_raw_response.create(**self._body(question, language))
            reply = raw.parse()
        except openai.APIStatusError as error:
            # A request that is refused is refused again; a server that is ill may recover.
            final = error.status_code < 500 and error.status_code not in (401, 403, 408, 409, 429)
            return self._failed(question, f"endpoint: HTTP {error.status_code}: {error.message}", begun), final
        except openai.APITimeoutError:
            return self._failed(question, "endpoint: no answer in time", begun), False
        except openai.APIConnectionError as error:
            return self._failed(question, f"endpoint: connection failed: {error.__cause__ or error}", begun), False
        except openai.OpenAIError as error:
            return self._failed(question, f"endpoint: {error}", begun), False
        except ValueError as error:
            return self._failed(question, f"endpoint: its reply is no JSON: {error}", begun), False
        return self._read(question, reply, check, raw.retries_taken + 1, time.monotonic() - begun), True

    @staticmethod
    def _body(question: Question, language: LanguageConfig) -> dict[str, Any]:
        pictures = [
            {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{base64.b64encode(data).decode()}"}}
            for data in question.images
        ]
        content = [*pictures, {"type": "text", "text": question.user}] if pictures else question.user
        body: dict[str, Any] = {
            "model": language.model,
            "messages": [{"role": "system", "content": question.system}, {"role": "user", "content": content}],
            "temperature": language.temperature,
            "top_p": language.top_p,
            "max_tokens": language.max_tokens,
            "seed": language.seed,
        }
        form = language.endpoint.form
        if form == "json_schema":
            schema = {"name": question.schema_name, "schema": question.schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif form == "json_object":
            body["response_format"] = {"type": "json_object"}
        extra = language.endpoint.extra
        return body | ({"extra_body": extra} if extra else {})

    def _read(
        self, question: Question, reply: Any, check: Callable[[str], object], calls: int, seconds: float
    ) -> Answered:
        usage = getattr(reply, "usage", None)
        answer = Answered(
            question.question_id,
            calls=calls,
            input_tokens=getattr(usage, "prompt_tokens", 0) or 0,
            output_tokens=getattr(usage, "completion_tokens", 0) or 0,
            seconds=round(seconds, 4),
        )
        choice = next(iter(getattr(reply, "choices", None) or ()), None)
        text = getattr(getattr(choice, "message", None), "content", None) or ""
        return replace(answer, text=text).judged(getattr(choice, "finish_reason", None) == "length", check)

    def _failed(self, question: Question, reason: str, begun: float) -> Answered:
        if self._key != NO_KEY:
            reason = reason.replace(self._key, "***")
        reason = " ".join(reason.split())[:300]
        seconds = round(time.monotonic() - begun, 4)
        return Answered(question.question_id, status=FAILED, reason=reason, seconds=seconds)
