"""What is exported trains elsewhere: open_clip's own trainer and sentence-transformers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from packaging.version import Version

from repair_ray.engines.encoder import build_model, save_weights
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.export.dataset import export_pairs
from repair_ray.export.model import export_model
from repair_ray.run import Recipe
from tests.export.made_run import make_run

pytestmark = [pytest.mark.integration, pytest.mark.whole_runs]
# As open_clip_torch[training] asks for: a later one marks the end of a shard in a way that the trainer does not know.
READABLE = Version("0.2.86")


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A folder with every export that is trained on, and a model to start from."""
    run, config = make_run(tmp_path)
    run.ready("round-1/training", Recipe({}))
    save_weights(build_model(RetrieverSpec("tiny-64")), run.path("round-1/training") / "model.safetensors")
    run.finish("round-1/training", Recipe({}), 0.0)
    for format in ("webdataset", "csv", "sentence-transformers"):
        export_pairs(run, config, tmp_path / format, format)
    for format in ("open_clip", "hf"):
        export_model(run, config, tmp_path / format, format)
    return tmp_path


@pytest.mark.parametrize(("kind", "data"), [("webdataset", "{00000..00000}.tar"), ("csv", "pairs.tsv")])
def test_open_clips_trainer(made: Path, kind: str, data: str) -> None:
    shards = pytest.importorskip("webdataset", reason="open_clip's trainer needs webdataset, which is not installed")
    pytest.importorskip("braceexpand", reason="open_clip's trainer needs braceexpand, which is not installed")
    if kind == "webdataset" and Version(shards.__version__) > READABLE:
        pytest.skip(f"open_clip's trainer reads no shard with webdataset {shards.__version__}, later than {READABLE}")
    command = [sys.executable, "-m", "open_clip_train.main", "--dataset-type", kind, "--train-data", data]
    command += ["--model", f"local-dir:{made / 'open_clip'}", "--batch-size", "2", "--epochs", "1", "--workers", "0"]
    command += ["--logs", str(made / "logs"), "--name", kind, "--device", "cpu", "--log-every-n-steps", "1"]
    ended = subprocess.run(command, cwd=made / kind, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    log = (made / "logs" / kind / "out.log").read_text()
    # Four pairs; with the five of the data nine rows, of which the last is left out.
    steps = {"webdataset": 2, "csv": 4}[kind]
    assert log.count("Train Epoch: 0") == steps
    assert "nan" not in log.lower()


def test_sentence_transformers(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    st = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    monkeypatch.chdir(made / "sentence-transformers")
    model = st.SentenceTransformer(str(made / "hf"), device="cpu")
    for name, pictures in (("text", ()), ("i2t", ("anchor",)), ("t2i", ("positive", "negative"))):
        rows = datasets.load_dataset("json", data_files=f"{name}.jsonl", split="train", cache_dir=str(made / "cache"))
        for column in pictures:
            rows = rows.cast_column(column, datasets.Image())
        settings = st.SentenceTransformerTrainingArguments(
            str(made / "st"), max_steps=2, per_device_train_batch_size=2, use_cpu=True, save_strategy="no", report_to=[]
        )
        trainer = st.SentenceTransformerTrainer(model, settings, rows, loss=MultipleNegativesRankingLoss(model))
        assert 0 < trainer.train().training_loss < 10, name
