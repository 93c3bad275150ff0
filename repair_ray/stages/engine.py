"""vLLM inside a Ray Data graph: the one place that builds a `ray.data.llm` processor from config.

`ray.data.llm` guards generation alone; a template, a picture or a tokenizer that raises ends its job, and an engine
that dies for one prompt is started for that prompt again. So the engine stage is extended here (ours): templates and
pictures are made inside it, each question carries its own failure, every answer is stored as it comes, and markers of
the questions in flight tell which one ended the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray.data
from PIL import Image
from ray.data.llm import build_processor, vLLMEngineProcessorConfig
from ray.llm._internal.batch.stages.vllm_engine_stage import vLLMEngineStageUDF
from ray.llm._internal.common.errors import VLLM_FATAL_ERRORS

from repair_ray import tables
from repair_ray.config import FaultConfig, LanguageConfig, PoolConfig
from repair_ray.data.images import ImageProblem
from repair_ray.engines.answers import FAILED, Answered, AnswerStore, second_try
from repair_ray.engines.tasks import Prompt, task
from repair_ray.observing.meter import Meter
from repair_ray.scheduling.asks import ENGINE_BLOCKS_IN_FLIGHT, of_engine, spread
from repair_ray.scheduling.fit import MIB, Ask
from repair_ray.stages.graph import interpreter
from repair_ray.stages.questions import Asked

# Batches that one engine mixes, as `ray.data.llm` has it.
MIXED_BATCHES = 8
ENDED = "its question ended the engine process"


@dataclass(frozen=True)
class EngineStep:
    """The vLLM engines of a graph, as an operator: questions in, `ANSWERS` rows out."""

    language: LanguageConfig
    arguments: dict[str, Any]
    key: str = "language"

    @property
    def holds(self) -> Ask:
        """What the engines' workers hold."""
        return of_engine(self.language, self.key)

    @property
    def pool(self) -> PoolConfig:
        """Replicas, what each takes, and the questions of one batch."""
        return self.language.pool

    @property
    def kind(self) -> str:
        """The class of the engines' stage."""
        return AskEngine.__name__

    def apply(
        self, data: ray.data.Dataset, id_column: str, markers: Path, figures: Path, faults: FaultConfig
    ) -> ray.data.Dataset:
        """Add the engines to a graph."""
        language, pool = self.language, self.pool
        assert language.model is not None
        # A model that lies in a folder needs no hub, and must not wait for one.
        variables = {"HF_HUB_OFFLINE": "1"} if Path(language.model).is_dir() else {}
        workers = language.engine.workers
        # Ray takes the memory of an actor that is placed on its own apart from its other resources; see `_extend`.
        memory = (pool.memory_mb or 0) * MIB if spread(language) else 0
        shares = {"CPU": pool.num_cpus / workers, "GPU": pool.num_gpus / workers, "memory": memory / workers}
        bundle = {name: share for name, share in shares.items() if share}
        in_flight = pool.blocks_in_flight or ENGINE_BLOCKS_IN_FLIGHT
        processor = build_processor(
            vLLMEngineProcessorConfig(
                model_source=language.model,
                engine_kwargs=dict(language.engine.arguments),
                batch_size=pool.rows_per_block,
                concurrency=(pool.actors, pool.most),
                max_concurrent_batches=min(in_flight, MIXED_BATCHES),
                max_tasks_in_flight_per_actor=in_flight,
                accelerator_type=pool.accelerator_type,
                placement_group_config={"bundle_per_worker": bundle},
                runtime_env=interpreter(pool.python, variables | language.engine.variables),
                # Ours to do, for each question; the processor's own way adds a column.
                should_continue_on_error=False,
                log_engine_metrics=False,
                # Made inside the engine stage, where a failure is that of one question.
                chat_template_stage=False,
                tokenize_stage=False,
                detokenize_stage=False,
            ),
            # The engine stage asks for the column; each question brings its own parameters.
            preprocess=lambda row: {"sampling_params": {}},
            postprocess=lambda row: {name: row.get(name) for name in tables.ANSWERS.schema.names},
            builder_kwargs={"override_stage_config_fn": lambda _, stage: self._extend(stage, markers, figures, faults)},
        )
        # The processor's rows are dicts, whose types are guessed anew in each block.
        return processor(data).map_batches(_as_answers, batch_format="pyarrow")

    def _extend(self, stage: Any, markers: Path, figures: Path, faults: FaultConfig) -> None:
        # Past pydantic's assignment, which would run the stage's validators again and forget its placement.
        object.__setattr__(stage, "fn", AskEngine)
        places = {"markers": str(markers), "figures": str(figures)}
        stage.fn_constructor_kwargs["asking"] = {**self.arguments, **places, "poison": faults.poison}
        stage.map_batches_kwargs.update(max_restarts=faults.max_restarts, max_task_retries=faults.max_restarts)
        if self.pool.memory_mb and not spread(self.language):
            stage.map_batches_kwargs["memory"] = self.pool.memory_mb * MIB
        if self.pool.labels:
            stage.map_batches_kwargs["label_selector"] = self.pool.labels


def _as_answers(table: pa.Table) -> pa.Table:
    return tables.to_table(table.to_pylist(), tables.ANSWERS.schema)


class AskEngine(vLLMEngineStageUDF):  # type: ignore[misc]
    """The engine stage of `ray.data.llm` that answers our questions, one failure at a time."""

    def __init__(self, *args: Any, asking: dict[str, Any], **kwargs: Any) -> None:
        # A copy: Ray Data has made a key of these arguments, and looks for it again.
        asking = dict(asking)
        self._meter = Meter(Path(asking.pop("figures")))
        self._markers = Path(asking.pop("markers"))
        self._poison: dict[str, str] = asking.pop("poison")
        self._markers.mkdir(parents=True, exist_ok=True)
        # In flight when an engine died: one of them did it, so from now on each of them goes alone.
        self._suspects = {path.name for path in self._markers.glob("*") if not path.name.startswith("alone-")}
        self._killers = {path.name.removeprefix("alone-") for path in self._markers.glob("alone-*")}
        self._gate = _Gate()
        self._asked = Asked(**asking)
        self._store = AnswerStore(Path(self._asked.answers))
        self._renderer: Any = None
        super().__init__(*args, **kwargs)
        self._meter.ready()

    def __del__(self) -> None:
        if "_meter" in vars(self):
            self._meter.close()
        super().__del__()

    async def _generate_with_error_handling(self, row: dict[str, Any], batch_uuid: Any) -> dict[str, Any]:
        place = row[self.IDX_IN_BATCH_COLUMN]
        question = row["question_id"]
        answer = self._store.get(question)
        if answer is None and question in self._killers:
            answer = Answered(question, status=FAILED, reason=ENDED)
            self._store.put(answer)
        if answer is None:
            alone = question in self._suspects
            async with self._gate.alone() if alone else self._gate.together():
                with self._meter.batch(1):
                    answer = await self._marked(row, alone)
                    again = max(0, answer.calls - 1)
                    self._meter.count(
                        rows_out=1,
                        input_tokens=answer.input_tokens,
                        output_tokens=answer.output_tokens,
                        retries=again,
                    )
        return {**tables.answer_row(asdict(answer), row), self.IDX_IN_BATCH_COLUMN: place, "__inference_error__": ""}

    async def _marked(self, row: dict[str, Any], alone: bool) -> Answered:
        marker = self._markers / (f"alone-{row['question_id']}" if alone else row["question_id"])
        marker.touch()
        try:
            answer = await self._answer(row)
        except VLLM_FATAL_ERRORS:
            # As in ray.data.llm: only a process that exits is replaced by one with an engine that lives.
            os._exit(1)
        except ImageProblem as problem:
            answer = Answered(row["question_id"], status=FAILED, reason=f"its picture: {problem.reason}", calls=0)
        except Exception as error:
            reason = f"engine: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
            answer = Answered(row["question_id"], status=FAILED, reason=reason)
        self._store.put(answer)
        for name in (row["question_id"], f"alone-{row['question_id']}"):
            (self._markers / name).unlink(missing_ok=True)
        return answer

    async def _answer(self, row: dict[str, Any]) -> Answered:
        injected = self._poison.get(row["question_id"])
        if injected == "kill":
            os._exit(1)
        if injected == "raise":
            raise RuntimeError("injected fault")
        prompt, config = self._asked.prompt(row), self._asked.config
        pictures = self._asked.pictures(row, prompt)
        first = await self._once(row, prompt, pictures, config)
        if first.status != FAILED:
            return first
        return (await self._once(row, prompt, pictures, second_try(config))).after(first)

    async def _once(
        self, row: dict[str, Any], prompt: Prompt, pictures: list[Image.Image], config: LanguageConfig
    ) -> Answered:
        begun = time.monotonic()
        request = {
            "prompt": self._render(prompt, len(pictures)),
            "sampling_params": {
                "temperature": config.temperature,
                "top_p": config.top_p,
                "max_tokens": config.max_tokens,
                "seed": config.seed,
                "structured_outputs": {"json": task(row["task"]).schema},
            },
            self.IDX_IN_BATCH_COLUMN: row[self.IDX_IN_BATCH_COLUMN],
        }
        if pictures:
            request["multimodal_data"] = {"image": pictures}
        if config.engine.lora:
            request["model"] = config.engine.lora
        _, output, _ = await self.llm.generate_async(request)
        answer = Answered(
            row["question_id"],
            text=output["generated_text"],
            input_tokens=output["num_input_tokens"],
            output_tokens=output["num_generated_tokens"],
            seconds=round(time.monotonic() - begun, 4),
        )
        return answer.judged(answer.output_tokens >= config.max_tokens, lambda text: self._asked.check(row, text))

    def _render(self, prompt: Prompt, pictures: int) -> str:
        if self._renderer is None:
            from transformers import AutoProcessor, AutoTokenizer

            load = AutoProcessor if self._asked.config.view == "images" else AutoTokenizer
            self._renderer = load.from_pretrained(self.model, trust_remote_code=False)
        parts = [{"type": "image"} for _ in range(pictures)]
        content = [*parts, {"type": "text", "text": prompt.user}] if pictures else prompt.user
        messages = [{"role": "system", "content": prompt.system}, {"role": "user", "content": content}]
        return str(
            self._renderer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, **self._asked.config.engine.template
            )
        )


class _Gate:
    """Many together, or one alone; who waits to be alone goes before those who come later."""

    def __init__(self) -> None:
        self._condition = asyncio.Condition()
        self._together = 0
        self._waiting = 0
        self._alone = False

    @contextlib.asynccontextmanager
    async def together(self) -> AsyncIterator[None]:
        async with self._condition:
            await self._condition.wait_for(lambda: not self._alone and not self._waiting)
            self._together += 1
        try:
            yield
        finally:
            async with self._condition:
                self._together -= 1
                self._condition.notify_all()

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        async with self._condition:
            self._waiting += 1
            await self._condition.wait_for(lambda: not self._alone and not self._together)
            self._waiting -= 1
            self._alone = True
        try:
            yield
        finally:
            async with self._condition:
                self._alone = False
                self._condition.notify_all()
