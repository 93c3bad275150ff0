"""Questions to an OpenAI-compatible endpoint, as a stage."""

from __future__ import annotations

import asyncio
import io
from dataclasses import asdict
from pathlib import Path
from typing import Any

from PIL import Image

from repair_ray import tables
from repair_ray.data.images import ImageProblem
from repair_ray.engines.answers import FAILED, Answered, AnswerStore
from repair_ray.engines.endpoint import Endpoint, Question
from repair_ray.engines.tasks import task
from repair_ray.stages.questions import Asked
from repair_ray.stages.rows import Row, RowStage


class AskEndpoint(RowStage):
    """Asks an OpenAI-compatible endpoint: the questions of a batch together, each answer stored as it comes."""

    def setup(self, **asked: Any) -> None:
        self._asked = Asked(**asked)
        self._answers = AnswerStore(Path(self._asked.answers))
        self._loop = asyncio.new_event_loop()
        self._endpoint = Endpoint(self._asked.config)

    def process(self, rows: list[Row]) -> list[Row]:
        return self._loop.run_until_complete(self._all(rows))

    async def _all(self, rows: list[Row]) -> list[Row]:
        answers = await asyncio.gather(*(self._one(row) for row in rows))
        return [tables.answer_row(asdict(answer), row) for answer, row in zip(answers, rows, strict=True)]

    async def _one(self, row: Row) -> Answered:
        known = self._answers.get(row["question_id"])
        if known is not None:
            return known
        try:
            prompt = self._asked.prompt(row)
            pictures = tuple(_jpeg(picture) for picture in self._asked.pictures(row, prompt))
        except ImageProblem as problem:
            return Answered(row["question_id"], status=FAILED, reason=f"its picture: {problem.reason}", calls=0)
        asked = task(row["task"])
        question = Question(row["question_id"], prompt.system, prompt.user, pictures, asked.name, asked.schema)
        answer, final = await self._endpoint.ask(question, lambda text: self._asked.check(row, text))
        again = max(0, answer.calls - 1)
        self.meter.count(input_tokens=answer.input_tokens, output_tokens=answer.output_tokens, retries=again)
        if final:
            self._answers.put(answer)
        return answer


def _jpeg(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=95)
    return buffer.getvalue()
