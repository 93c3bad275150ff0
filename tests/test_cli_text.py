"""`repair-ray text run`: errors that a person can mend are one line and exit code 2, before Ray starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from repair_ray.cli import app

CONFIG = "texts: a.txt\nretriever: {model: tiny-64}\ntraining: {steps: 1, batch_size: 4}\n"


def refuse(*arguments: str) -> str:
    ended = CliRunner().invoke(app, list(arguments))
    assert isinstance(ended.exception, SystemExit), ended.exception
    assert ended.exit_code == 2
    (line,) = ended.stderr.strip().splitlines()
    assert line.startswith("error: ")
    return line


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(CONFIG)
    Path("a.txt").write_text("one\ntwo\nthree\n")
    return "job.yaml"


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["objective.positive_mixing.mix=printed"], "HNCSE's printed Eq. 2 is not offered"),
        (["objective.hard_negative_mixing.k=4"], "hard_negative_mixing.k=4 is not below training.batch_size=4"),
        # The three texts that there are make smaller batches than the config says.
        (["objective.hard_negative_mixing.k=3"], "hard_negative_mixing.k=3 is not below the 3 texts that there are"),
        (["training.workers=4"], "3 texts do not go round training.workers=4"),
        (["training.lrr=1"], "unknown key 'training.lrr'; did you mean 'lr'?"),
        (["texts=none.txt"], "no such file or folder: none.txt"),
        (["texts.column=text"], "has no column 'text'; its columns: one"),
        (["validation=none.tsv"], "no such file or folder: none.tsv"),
        (["retriever.model=ViT-Z-99"], "unknown retriever.model 'ViT-Z-99'"),
        (["retriever.pretrained=no/weights.pt"], "retriever.pretrained: no checkpoint at no/weights.pt"),
        (["--redo", "nothing"], "--redo nothing: no such stage"),
    ],
)
def test_what_is_refused(job: str, overrides: list[str], expected: str) -> None:
    if overrides[0] == "texts.column=text":
        Path(job).write_text(CONFIG.replace("texts: a.txt", "texts: {path: a.txt}"))
    assert expected in refuse("text", "run", job, *overrides)


def test_a_config_of_the_other_kind(job: str) -> None:
    Path(job).write_text("data: {path: a}\n")
    assert "unknown key 'data'" in refuse("text", "run", job)


def test_status_shows_a_text_only_run(job: str) -> None:
    refuse("text", "run", job, "training.workers=4")  # which stops after the texts were read
    ended = CliRunner().invoke(app, ["status", "runs/text"])
    assert ended.exit_code == 0, ended.output
    assert "data/texts" in ended.stdout and "finished" in ended.stdout
