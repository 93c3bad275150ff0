"""`repair-ray evaluate sts`: models, runs of pictures and text-only runs on scored pairs of sentences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from repair_ray.cli import app
from repair_ray.config import TextConfig, parse_section
from repair_ray.engines.encoder import Encoder, build_model, save_config, save_weights
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.run import Recipe, Run, write_json
from tests.measuring.conftest import measure

PAIRS = [
    (5.0, "a red circle", "one red circle"),
    (4.0, "a red circle", "a red square"),
    (2.5, "two blue stars", "three blue rings"),
    (1.0, "a small black cross", "a large pink heart"),
    (0.0, "three green diamonds", "something else entirely"),
    (3.0, "a hollow triangle", "a dotted triangle"),
]


@pytest.fixture
def pairs(workplace: Path) -> Path:
    rows = [f"{score}\t{first}\t{second}" for score, first, second in PAIRS]
    path = workplace / "pairs.tsv"
    path.write_text("\n".join(["score\tsentence1\tsentence2", *rows, "much\ta\tb", "1\ta"]) + "\n")
    return path


def expected(spec: RetrieverSpec) -> float:
    """Spearman x 100, pair by pair."""
    encoder = Encoder(spec)
    cosines = []
    for _, *texts in PAIRS:
        first, second = encoder.encode_texts(texts).astype(float)
        cosines.append(float(first @ second))
    return 100 * float(stats.spearmanr(cosines, [score for score, *_ in PAIRS]).statistic)


def weights(workplace: Path, place: str) -> RetrieverSpec:
    return RetrieverSpec("tiny-64", str(workplace / "run" / place / "training" / "model.safetensors"))


def test_a_model_with_weights(workplace: Path, pairs: Path) -> None:
    spec = weights(workplace, "base")
    shown, facts = measure("sts", "tiny-64", str(pairs), "--pretrained", str(spec.weights))
    (found,) = facts["retrievers"].values()
    assert found["metrics"]["n"] == 6
    assert found["metrics"]["spearman"] == pytest.approx(expected(spec), abs=0.01)
    low, high = found["metrics"]["spearman_ci"]
    assert -100 <= low <= found["metrics"]["spearman"] <= high <= 100
    assert facts["protocol"]["unused"]["reasons"] == {"bad_score": 1, "bad_record": 1}
    assert facts["protocol"]["unused"]["such_as"] == [f"{pairs}:8", f"{pairs}:9"]
    assert "2 rows could not be used: 1 bad score, 1 bad record" in shown
    assert "6 pairs" in shown and "words in common" in shown
    assert f"{found['metrics']['spearman']:.1f}" in shown


def test_a_run_before_and_after_repair(workplace: Path, pairs: Path) -> None:
    _, facts = measure("sts", "run", str(pairs))
    assert {name: found["metrics"]["spearman"] for name, found in facts["retrievers"].items()} == {
        "base": pytest.approx(expected(weights(workplace, "base")), abs=0.01),
        "repaired": pytest.approx(expected(weights(workplace, "round-1")), abs=0.01),
    }


def test_shared_words(workplace: Path, pairs: Path) -> None:
    # Words in common, by hand: 2*2/6, 2*2/6, 2*1/6, 2*1/8, 0, 2*2/6.
    words = [2 / 3, 2 / 3, 1 / 3, 1 / 4, 0, 2 / 3]
    _, facts = measure("sts", "run", str(pairs), "--which", "base")
    by_hand = 100 * stats.spearmanr(words, [score for score, *_ in PAIRS]).statistic
    assert facts["shared_words"]["spearman"] == pytest.approx(by_hand, abs=1e-3)


def test_subsets_of_semeval(workplace: Path) -> None:
    folder = workplace / "semeval"
    folder.mkdir()
    for name, rows in (("one", PAIRS[:3]), ("two", PAIRS[3:])):
        (folder / f"STS.input.{name}.txt").write_text("".join(f"{a}\t{b}\n" for _, a, b in rows))
        (folder / f"STS.gs.{name}.txt").write_text("".join(f"{score}\n" for score, *_ in rows))
    shown, facts = measure("sts", "run", str(folder), "--which", "base")
    found = facts["retrievers"]["base"]
    assert {name: part["n"] for name, part in found["subsets"].items()} == {"one": 3, "two": 3}
    assert found["metrics"]["spearman"] == pytest.approx(expected(weights(workplace, "base")), abs=0.01)
    assert "By subset" in shown


def test_columns_by_name_and_long_texts(workplace: Path) -> None:
    rows = [f"{score},{first},{second}" for score, first, second in PAIRS]
    long = " ".join(["circle"] * 40)
    (workplace / "pairs.csv").write_text("\n".join(["much,left,right", *rows, f"1,{long},{long} square"]))
    shown, facts = measure("sts", "run", "pairs.csv", "--columns", "much,left,right", "--which", "base")
    assert facts["retrievers"]["base"]["truncated"] == 2
    assert "2 texts are longer than the context" in shown


def test_constant_embeddings_have_no_figure(workplace: Path, pairs: Path) -> None:
    model = build_model(RetrieverSpec("tiny-64"))
    for parameter in model.text_projection, model.ln_final.weight:  # type: ignore[union-attr]
        parameter.data.zero_()  # type: ignore[operator, union-attr]
    save_weights(model, workplace / "constant.safetensors")
    shown, facts = measure("sts", "tiny-64", str(pairs), "--pretrained", "constant.safetensors")
    (found,) = facts["retrievers"].values()
    assert found["metrics"] == {"n": 6, "spearman": None, "spearman_ci": None}
    assert "–" in shown


def text_run(folder: Path, **retriever: object) -> Run:
    """A text-only run as it is when its text tower has been trained, with random weights."""
    tree = {"name": "text", "output": str(folder), "texts": "a", "retriever": {"model": "tiny-64", **retriever}}
    config = parse_section(TextConfig, tree)
    run = Run(folder / "text")
    run.path("training").mkdir(parents=True)
    write_json(run.folder / "text.json", config.model_dump(mode="json"))
    model = build_model(RetrieverSpec("tiny-64"), seed=7)
    save_config(model, "tiny-64", run.path("training"))
    save_weights(model, run.path("training") / "model.safetensors")
    return run


def test_a_text_only_run(workplace: Path, pairs: Path) -> None:
    base = weights(workplace, "base")
    run = text_run(workplace, pretrained=str(base.weights))
    assert "its text tower is not trained" in refuse("text", str(pairs))
    run.ready("training", Recipe({}))
    run.finish("training", Recipe({}), 0.0)
    _, facts = measure("sts", "text", str(pairs))
    trained = RetrieverSpec("tiny-64", str(run.path("training") / "model.safetensors"))
    assert {name: found["metrics"]["spearman"] for name, found in facts["retrievers"].items()} == {
        "base": pytest.approx(expected(base), abs=0.01),
        "trained": pytest.approx(expected(trained), abs=0.01),
    }
    _, loaded = measure("sts", "local-dir:text/training", str(pairs))
    (found,) = loaded["retrievers"].values()
    assert found["metrics"] == facts["retrievers"]["trained"]["metrics"]


def test_a_text_only_run_from_scratch_has_no_base(workplace: Path, pairs: Path) -> None:
    run = text_run(workplace)
    run.ready("training", Recipe({}))
    run.finish("training", Recipe({}), 0.0)
    assert set(measure("sts", "text", str(pairs))[1]["retrievers"]) == {"trained"}
    assert "began without weights" in refuse("text", str(pairs), "--which", "base")
    assert "leave --pretrained out" in refuse("text", str(pairs), "--pretrained", "x")


@pytest.mark.parametrize(
    ("arguments", "expected_line"),
    [
        (("run", "none.tsv"), "no such file or folder"),
        (("run", "pairs.tsv", "--columns", "a,b"), "does not name three columns"),
        (("run", "pairs.tsv", "--columns", "a,b,c"), "has no columns a, b, c; found: score, sentence1, sentence2"),
        (("run", "bad.tsv"), "no pair of bad.tsv can be used: 1 bad_score (such as bad.tsv:2)"),
        (("tiny-64", "pairs.tsv"), "as a model it needs weights"),
    ],
)
def test_what_is_refused(workplace: Path, pairs: Path, arguments: tuple[str, ...], expected_line: str) -> None:
    (workplace / "bad.tsv").write_text("score\tsentence1\tsentence2\nx\ta\tb\n")
    assert expected_line in refuse(*arguments)


def refuse(*arguments: str) -> str:
    ended = CliRunner().invoke(app, ["evaluate", "sts", *arguments])
    assert ended.exit_code == 2, ended.output
    (line,) = ended.stderr.strip().splitlines()
    return line


def test_expected_is_no_constant(workplace: Path) -> None:
    """The figures above are not those of one model measured twice."""
    figures = [expected(weights(workplace, place)) for place in ("base", "round-1")]
    assert np.ptp(figures) > 1
