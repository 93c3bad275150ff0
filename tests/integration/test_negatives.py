"""Negative captions by real Ray: prototypes of a tiny retriever, the rivals, and settings that find nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from repair_ray import tables
from repair_ray.config import Config, FaultConfig
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.run import Run, RunError
from repair_ray.stages.match import word_totals
from repair_ray.synthesis.negatives import negative_captions
from tests.stages.captioned_run import config_of, make_run

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("local_ray")]

EDITS = "round-1/edits"
SPEC = RetrieverSpec("tiny-64")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captioned")
    return make_run(folder).folder


def config(run: Run, budget: int | None = None, **negatives: object) -> Config:
    section = {"alpha": -1.0, "beta": -1.0, **negatives}
    return config_of(run.folder.parent, negatives=section, mining={"budget": budget})


def test_words_that_look_alike_stand_in(run: Run) -> None:
    negative_captions(run, config(run, budget=20), EDITS, "san", SPEC)
    matches = run.manifest("round-1/matches")
    assert matches is not None and matches["statuses"] == {"ok": 11, "error": 1}
    prototypes = {row["lemma"]: row for row in run.read("round-1/prototypes").to_pylist()}
    assert set(prototypes) == {"red", "orange", "blue", "green", "square", "circle", "box"}
    assert prototypes["square"]["matches"] == 4 * 16 and len(prototypes["square"]["vector"]) == 128
    assert prototypes["box"]["images"] == 3
    pairs = run.read("round-1/confusable").to_pylist()
    nouns = [row for row in pairs if row["word"] == "box"]
    assert {row["other"] for row in nouns} == {"square", "circle"} and nouns[0]["cosine"] >= nouns[1]["cosine"]
    edits = run.read(EDITS).to_pylist()
    kept = [row for row in edits if row["status"] == tables.OK]
    assert len(kept) == 20 and {row["kind"] for row in kept} == {tables.NEGATIVE}
    assert len({row["query_id"] for row in kept}) == 12, "each picture has one before any has a third"
    oracle = (run.manifest("round-1/confusable") or {})["oracle"]
    assert oracle == {"kind": "visual", "model": "tiny-64", "weights": None, "precision": "fp32"}
    before = run.manifest(EDITS)
    negative_captions(run, config(run, budget=20), EDITS, "san", SPEC)
    assert run.manifest(EDITS) == before, "made once"
    with pytest.raises(RunError, match=r"negatives.alpha was -1.0, is now 0.5"):
        negative_captions(run, config(run, budget=20, alpha=0.5), EDITS, "san", SPEC)


@pytest.mark.parametrize("similarity", ["text", "random"])
def test_its_rivals_write_the_same_table(run: Run, similarity: str) -> None:
    negative_captions(run, config(run, similarity=similarity), EDITS, "san", SPEC)
    edits = [row for row in run.read(EDITS).to_pylist() if row["status"] == tables.OK]
    assert {row["query_id"] for row in edits} == {f"i{n:02d}" for n in range(12)}, "no picture was opened"
    assert all("->" in row["instruction"] for row in edits)


def test_swaps_and_a_list_need_no_retriever(run: Run, tmp_path: Path) -> None:
    negative_captions(run, config(run), "controls/negclip/edits", "negclip", SPEC)
    reasons = (run.manifest("controls/negclip/edits") or {})["reasons"]
    assert reasons == {"the caption has no two words of one part of speech": 24}
    (tmp_path / "pairs.csv").write_text("word,other\nred,orange\n")
    negative_captions(run, config(run, confusable=str(tmp_path / "pairs.csv")), EDITS, "san", SPEC)
    edits = run.read(EDITS).to_pylist()
    assert {row["text"] for row in edits if row["query_id"] == "i00"} == {"an orange square", "The square is orange."}
    assert {row["reason"] for row in edits if row["query_id"] == "i06"} == {
        "no word of the caption has one that is like it"
    }
    (tmp_path / "same.csv").write_text("word,other\nred,orange\n")
    with pytest.raises(RunError, match=r"negatives.same was None, is now 'sha256:"):
        same = config(run, confusable=str(tmp_path / "pairs.csv"), same=str(tmp_path / "same.csv"))
        negative_captions(run, same, EDITS, "san", SPEC)
    (tmp_path / "none.csv").write_text("word,other\nhorse,cow\n")
    with pytest.raises(RunError, match=r"none of the 1 listed pairs"):
        negative_captions(run, config(run, confusable=str(tmp_path / "none.csv")), "x/edits", "san", SPEC)


def test_thresholds_that_nothing_reaches_say_how_near_it_came(run: Run) -> None:
    with pytest.raises(RunError, match=r"negatives.alpha=0.99 with a word of its captions \(the nearest has 0\.\d+\)"):
        negative_captions(run, config(run, alpha=0.99), "a/edits", "san", SPEC)
    with pytest.raises(RunError, match=r"negatives.beta=1 \(the nearest two have 0\.\d+\); lower it"):
        negative_captions(run, config(run, beta=1.0), "b/edits", "san", SPEC)


@pytest.mark.whole_runs
def test_a_picture_that_kills_its_worker_is_missing_from_the_sums_alone(run: Run) -> None:
    negative_captions(run, config(run), "whole/edits", "san", SPEC)
    poisoned = config(run).model_copy(update={"faults": FaultConfig(poison={"i03": "kill"})})
    negative_captions(run, poisoned, "killed/edits", "san", SPEC)
    rows = {row["image_id"]: row for row in run.read("killed/matches").to_pylist()}
    assert len(rows) == 12 and rows["i03"]["reason"] == "killed its worker process"
    whole, killed = (word_totals(run, f"{place}/matches") for place in ("whole", "killed"))
    images = [dict(zip(totals.keys, totals.items, strict=True)) for totals in (whole, killed)]
    assert images[0]["square", "noun"] == 4 and images[1]["square", "noun"] == 3
    matches = [dict(zip(totals.keys, totals.sums.matches.tolist(), strict=True)) for totals in (whole, killed)]
    assert matches[0]["orange", "adjective"] - matches[1]["orange", "adjective"] == 16
    assert matches[0]["green", "adjective"] == matches[1]["green", "adjective"]


def test_a_tower_without_patch_tokens_says_what_to_set(run: Run) -> None:
    with pytest.raises(RunError, match=r"a worker could not start: .*negatives.tokens=whole"):
        negative_captions(run, config(run), "a/edits", "san", RetrieverSpec("RN50"))
