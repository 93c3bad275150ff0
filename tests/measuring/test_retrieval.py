"""`evaluate retrieval`, `multimatch` and `wiseft` on a small run: its own figures again, and others' ground truth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from repair_ray.run import Run
from tests.measuring.conftest import NAMES, measure
from tests.test_cli import refuse


def test_a_runs_own_figures_come_out_again(workplace: Path) -> None:
    shown, found = measure("retrieval", "run")
    for label, place in (("base", "base"), ("repaired", "round-1")):
        manifest = Run("run").manifest(f"{place}/metrics")
        assert manifest is not None
        ours = found["retrievers"][label]["metrics"]
        for direction in ("i2t", "t2i"):
            for name in ("r@1", "r@5", "r@10", "mrr", "n", "skipped"):
                assert ours[direction][name] == manifest["metrics"][direction][name]
        # The protocol of the run and of this command tell of the same queries and the same gallery.
        for name in ("split_hash", "images", "captions", "captions_per_image", "ties", "scores"):
            assert found["protocol"][name] == manifest["protocol"][name]
    assert found["protocol"]["captions_per_image"] == {"min": 2, "mean": 2.125, "max": 3}
    gain = (
        found["retrievers"]["repaired"]["metrics"]["t2i"]["mrr"] - found["retrievers"]["base"]["metrics"]["t2i"]["mrr"]
    )
    assert found["difference"]["t2i"]["mrr"]["difference"] == pytest.approx(gain, abs=0.002)
    for part in ("8 images, 17 captions", found["protocol"]["split_hash"], "Ties: pessimistic", "tiny-64 in fp32"):
        assert part in shown


def test_a_model_on_the_files_that_the_run_was_made_of(workplace: Path) -> None:
    """The same pictures and ids, so the same hash; a missing picture is told."""
    weights = "run/round-1/training/model.safetensors"
    _, run = measure("retrieval", "run", "--which", "repaired")
    arguments = ("retrieval", "tiny-64", "dataset.json", "--pretrained", weights, "--protocol")
    _, files = measure(*arguments, "full")
    assert files["protocol"]["split_hash"] == run["protocol"]["split_hash"]
    assert files["retrievers"]["tiny-64"]["metrics"] == run["retrievers"]["repaired"]["metrics"]
    Path(NAMES[0]).unlink()
    shown, fewer = measure(*arguments, "flickr30k-1k")
    assert fewer["protocol"]["unused"]["reasons"] == {"missing_image": 1}
    assert fewer["protocol"]["split_hash"] != run["protocol"]["split_hash"]
    assert (fewer["protocol"]["complete"], fewer["protocol"]["positives"]) == (False, "each picture's own captions")
    assert "Not the whole of flickr30k-1k: 7 of the 1,000 pictures were there" in shown
    assert "make no two folds" in refuse("evaluate", *arguments, "coco-1k")


def test_positives_that_share_a_text_count_only_where_they_are_known(workplace: Path) -> None:
    _, known = measure("multimatch", "run", "--which", "base")
    right = known["retrievers"]["base"]["metrics"]
    # Two pictures of the split share a caption: each has three right captions, and each such caption two pictures.
    assert right["i2t"]["positives"] == {"min": 2, "mean": pytest.approx(19 / 8), "max": 3}
    assert right["t2i"]["positives"] == {"min": 1, "mean": pytest.approx(19 / 17, abs=1e-3), "max": 2}
    assert known["protocol"]["map_denominator"] == "min(K, positives)"


def test_eccv_ground_truth_by_the_ids_of_a_karpathy_json(workplace: Path) -> None:
    # Picture 100 has the captions 500 to 502, picture 101 has 503 and 504; 9000 is of another split.
    Path("i2c.json").write_text(json.dumps({"100": [500, 501, 502, 503, 9000], "9": [500]}))
    Path("c2i.json").write_text(json.dumps({"503": [100, 101], "504": [101]}))
    files = ("--image-to-caption", "i2c.json", "--caption-to-image", "c2i.json")
    arguments = ("multimatch", "run", "dataset.json", "--which", "base", "--split", "test", *files)
    shown, found = measure(*arguments, "--k", "2", "--denominator", "positives")
    metrics = found["retrievers"]["base"]["metrics"]
    assert (metrics["i2t"]["n"], metrics["i2t"]["positives"]["max"]) == (1, 4)
    assert (metrics["t2i"]["n"], metrics["t2i"]["positives"]) == (2, {"min": 1, "mean": 1.5, "max": 2})
    truth = found["protocol"]["ground_truth"]["i2t"]
    assert (truth["missing_queries"]["n"], truth["missing_answers"]) == (1, {"n": 1, "such_as": ["9000"]})
    assert found["protocol"]["map_denominator"] == "positives"
    assert "1 of 2 queries and 1 answers of the file are not in the data set" in shown
    # The run's tables know no ids of COCO.
    assert "none of the queries of i2c.json" in refuse("evaluate", "multimatch", "run", "--which", "base", *files)
    assert "takes two files" in refuse("evaluate", *arguments[:-2])


def test_wise_ft_starts_at_the_base_and_ends_at_the_repaired(workplace: Path) -> None:
    shown, found = measure("wiseft", "run", "--steps", "2", "--split", "test")
    assert [point["alpha"] for point in found["points"]] == [0.0, 0.5, 1.0]
    for point, place in ((found["points"][0], "base"), (found["points"][2], "round-1")):
        manifest = Run("run").manifest(f"{place}/metrics")
        assert manifest is not None
        for direction in ("i2t", "t2i"):
            assert point["metrics"][direction]["mrr"] == manifest["metrics"][direction]["mrr"]
    best = max(found["points"], key=lambda point: (point["mean_r@1"], -point["alpha"]))
    assert found["best"] == best["alpha"]
    assert f"Best mean R@1 at alpha {found['best']:g}" in shown


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("retrieval", "nowhere", "dataset.json"), "nowhere is no run, and as a model it needs weights: --pretrained"),
        (("retrieval", "run", "--pretrained", "openai"), "run is a run, whose retrievers have weights of their own"),
        (("retrieval", ".", "dataset.json"), "is no run directory: it holds no config.json"),
        (("retrieval", "tiny-64", "--pretrained", "openai"), "name the data: a path"),
        (("retrieval", "tiny-64", "dataset.json", "--pretrained", "no.pt"), "no checkpoint at no.pt"),
        (("retrieval", "tiny-64", "dataset.json", "--pretrained", "openai"), "no tag of tiny-64"),
        (("retrieval", "run", "dataset.json", "--data", "image_rot=x"), "--data: image_rot"),
        (("retrieval", "run", "dataset.json", "--data", "image_root"), "is not of the form key=value"),
        (("retrieval", "run", "dataset.json", "--split", "dev2"), "no row of split 'dev2'"),
        (("retrieval", "run", "--data", "image_root=x"), "a run has read its data already"),
        (("retrieval", "run", "--split", "train"), "has no picture of split 'train'"),
        (("wiseft", "tiny-64", "dataset.json"), "there is no run at tiny-64"),
    ],
)
def test_what_is_refused(
    made: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], expected: str
) -> None:
    monkeypatch.chdir(made)
    assert expected in refuse("evaluate", *arguments)


def test_a_run_that_is_not_trained_yet(workplace: Path) -> None:
    Path("run/round-1/training/manifest.json").unlink()
    assert "round-1/training does not exist yet" in refuse("evaluate", "retrieval", "run")
    _, found = measure("retrieval", "run", "--which", "base")
    assert list(found["retrievers"]) == ["base"] and "difference" not in found
