"""What plugins make, without Ray: drafts become rows, a term joins the objective."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from repair_ray import tables
from repair_ray.config import ObjectiveConfig
from repair_ray.run import RunError
from repair_ray.stages.candidates import DRAFTS
from repair_ray.stages.drafts import DraftCorrections, DraftNegatives
from repair_ray.stages.rows import RowStage
from repair_ray.training.batches import Batch
from repair_ray.training.objective import Encoded, Objective
from repair_ray.training.pairs import PairSet
from tests.plugins.installed import install, install_acme

NONE = np.zeros((0, 2), np.int64)


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages, acme's among them."""
    monkeypatch.syspath_prepend(str(tmp_path))
    install_acme(tmp_path)
    return tmp_path


def stage(kind: type[RowStage], folder: Path, schema: pa.Schema, id_column: str, **arguments: Any) -> RowStage:
    made = {"seed": 3, "settings": {}, **arguments}
    return kind(id_column=id_column, schema=schema, markers=str(folder / "m"), poison={}, arguments=made)


def failure(identity: str, direction: str) -> dict[str, Any]:
    texts = {"query_text": None, "candidate_text": "a dog"} if direction == "i2t" else {"query_text": "a cat"}
    captions = {"query_captions": ["a cat", "one cat"], "candidate_captions": ["a dog"]}
    return {"failure_id": identity, "direction": direction, **texts, **captions}


def test_drafts_for_failures_are_candidates_and_a_caption_gets_its_own_picture(tmp_path: Path) -> None:
    given = tables.to_table([failure("a", "i2t"), failure("b", "t2i")], tables.CASES)
    drafting = stage(DraftCorrections, tmp_path, DRAFTS, "failure_id", name="prefixed", settings={"prefix": "look:"})
    first, second = drafting(given).to_pylist()
    assert first["kind"] == tables.EDITED and second["kind"] == tables.PAIRED
    shown = [(made["text"], made["status"], made["reason"]) for made in first["candidates"]]
    assert shown == [("look: a cat", "ok", None), ("never", "rejected", "never right")]
    assert second["candidates"] == []


def picture(identity: str, *captions: str) -> dict[str, Any]:
    rows = [{"caption_id": f"{identity}-{n}", "text": text} for n, text in enumerate(captions)]
    return {"image_id": identity, "captions": rows, "group_captions": list(captions)}


def negatives(folder: Path, name: str, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    drafting = stage(DraftNegatives, folder, tables.NEGATIVES.schema, "image_id", name=name, per_caption=1)
    return drafting(pa.Table.from_pylist(list(rows))).to_pylist()


def test_drafts_for_captions_are_negatives_and_a_caption_of_the_picture_is_none(tmp_path: Path) -> None:
    made = negatives(tmp_path, "shuffled", picture("p", "one two three four five", "dog"))
    assert [row["status"] for row in made] == ["ok", "rejected"]
    assert sorted(made[0]["text"].split()) == ["five", "four", "one", "three", "two"]
    ids = ("query_id", "candidate_id", "ground_truth_id", "direction", "kind")
    assert [made[0][name] for name in ids] == ["p", "p-0", "p-0", "i2t", tables.NEGATIVE]
    # "dog" can be put in no other order, and is true of its own picture.
    assert made[1]["reason"] == "a draft is empty, written twice, or a caption of the picture"
    assert negatives(tmp_path, "shuffled", picture("p", "one two three four five", "dog")) == made


def test_what_a_strategy_raises_stays_with_its_row(site: Path) -> None:
    source = (
        "from repair_ray.engines.language import Draft\n"
        "class Picky:\n"
        "    works_on = 'captions'\n"
        "    def __init__(self, settings): pass\n"
        "    def drafts(self, case, seed):\n"
        "        if 'bad' in case.candidate_text: raise RuntimeError('not this one')\n"
        "        return [case.candidate_text + '!'] if 'text' in case.candidate_text else [Draft('x y')]\n"
    )
    install(site, "picky", {"repair_ray.strategies": {"picky": "picky_module:Picky"}}, picky_module=source)
    made = negatives(site, "picky", picture("p", "bad"), picture("q", "good"), picture("r", "a text"))
    found = {row["query_id"]: (row["status"], row["text"], row["reason"]) for row in made}
    assert found == {
        "p": ("error", None, "RuntimeError: not this one"),
        "q": ("ok", "x y", None),
        "r": ("error", None, "TypeError: the strategy 'picky' gives str, not Draft"),
    }


def objective(terms: dict[str, Any]) -> Objective:
    pairs = PairSet(*(np.arange(2) for _ in range(5)))
    return Objective(ObjectiveConfig.model_validate({"placement": "dispersed", **terms}), pairs)


def encoded() -> Encoded:
    place = np.array([[0, 0], [1, 1]])
    absent = np.zeros((0, 3), np.int64)
    batch = Batch(np.arange(2), np.arange(2), place, absent, absent, NONE, NONE, np.zeros((0, 0), np.int64))
    images = torch.tensor([[1.0, 0.0], [0.6, 0.8]], requires_grad=True)
    return Encoded(0, batch, images, torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor(10.0))


def test_a_term_joins_the_sum_with_its_weight() -> None:
    made = objective({"spread": {"weight": 0.5}})(encoded())
    assert set(made) == {"infonce", "spread"}
    # The cosine of both is 0.6, and stands twice among four entries: 0.5 * 2 * 0.36 / 4.
    assert made["spread"].item() == pytest.approx(0.09)
    assert objective({"spread": {"power": 1}})(encoded())["spread"].item() == pytest.approx(0.3)
    assert set(objective({"spread": {"weight": 0}})(encoded())) == {"infonce"}


@pytest.mark.parametrize(
    ("returns", "said"),
    [("1.0", "gives float"), ("encoded.images", r"shape \(2, 2\)"), ("encoded.texts.sum()", r"shape \(\)")],
)
def test_a_term_that_gives_no_loss_is_named(site: Path, returns: str, said: str) -> None:
    name = f"term{abs(hash(returns))}"
    init = "  def __init__(self, settings, known, seed): pass\n"
    source = f"class T:\n{init}  def __call__(self, encoded): return {returns}\n"
    install(site, name, {"repair_ray.terms": {name: f"{name}:T"}}, **{name: source})
    with pytest.raises(RunError, match=f"objective.{name}: the term .*{said}, not a scalar tensor with a gradient"):
        objective({name: True})(encoded())
