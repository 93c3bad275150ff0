"""Words matched with visual tokens, batch by batch: sums that do not depend on the batches, and bad pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from repair_ray import tables
from repair_ray.engines.encoder import Encoder
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.engines.san.totals import WordTotals
from repair_ray.engines.visual_tokens import VisualTokens
from repair_ray.run import Recipe, Run, RunError
from repair_ray.stages.captioned import captioned
from repair_ray.stages.match import MatchWords, word_totals
from tests.stages.captioned_run import config_of, make_run

ALPHA = 0.05


def matched(run: Run, folder: Path, product: str, batch: int, **changes: Any) -> WordTotals:
    """The stage over all pictures, so many at a time, committed and added up."""
    arguments = {
        "folder": str(run.folder),
        "data": config_of(folder).data.model_dump(mode="json"),
        "needs": "prototypes",
        "language_name": "en",
        "prompt": "{}",
        "alpha": ALPHA,
        "kind": "patches",
        "spec": {"model": "tiny-64"},
        "device": "cpu",
        "batch_size": 4,
        **changes,
    }
    schema = tables.MATCHES.schema
    stage = MatchWords(
        id_column="image_id", schema=schema, markers=str(folder / "markers"), poison={}, arguments=arguments
    )
    rows = captioned(run, ("train",))
    parts = [stage(rows.slice(start, batch)) for start in range(0, len(rows), batch)]
    run.ready(product, Recipe({}))
    run.commit(product, Recipe({}), tables.MATCHES, pa.concat_tables(parts), 0.0)
    return word_totals(run, product)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path)


def test_sums_are_those_of_all_pictures_by_whichever_batches(run: Run, tmp_path: Path) -> None:
    whole, single = (matched(run, tmp_path, f"m{batch}", batch) for batch in (12, 5))
    assert whole.keys == single.keys == sorted(whole.keys)
    words = {lemma for lemma, _ in whole.keys}
    assert words == {"red", "orange", "blue", "green", "square", "circle", "box"}
    assert whole.items == single.items
    images = dict(zip(whole.keys, whole.items, strict=True))
    assert images["square", "noun"] == 4
    assert images["box", "noun"] == 3, "the picture that cannot be read holds none"
    assert whole.forms == single.forms
    assert (whole.sums.matches == single.sums.matches).all()
    np.testing.assert_allclose(whole.sums.vectors(), single.sums.vectors(), atol=1e-5)
    rows = {row["image_id"]: row for row in run.read("m12").to_pylist()}
    assert rows["i11"]["status"] == tables.ERROR and rows["i11"]["reason"] == "not_an_image"
    assert sorted(row["image_id"] for row in rows.values() if row["covers"]) == ["i00"]
    assert rows["i03"]["matches"] == sum(int(n) for n in _plain(run, tmp_path, "i03")[1].values())


def test_prototypes_equal_a_plain_computation(run: Run, tmp_path: Path) -> None:
    totals = matched(run, tmp_path, "m", 3)
    plain: dict[str, np.ndarray] = {}
    for image in (f"i{n:02d}" for n in range(11)):
        for word, tokens in _plain(run, tmp_path, image)[0].items():
            plain[word] = plain.get(word, 0) + tokens.sum(axis=0)
    vectors = totals.sums.vectors()
    assert (totals.sums.matches > 0).sum() >= 4
    for place, (lemma, _) in enumerate(totals.keys):
        total = plain[lemma]
        norm = float(np.linalg.norm(total))
        np.testing.assert_allclose(vectors[place], total / norm if norm else total, atol=1e-4)


def _plain(run: Run, folder: Path, image: str) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """The tokens of one picture that match each of its two words, straight from the encoder."""
    encoder = Encoder(RetrieverSpec("tiny-64"))
    colour, shape = next(
        row["captions"][0]["text"].split()[1:]
        for row in captioned(run, ("train",)).to_pylist()
        if row["image_id"] == image
    )
    tokens = VisualTokens(encoder, "patches")([Image.open(folder / f"{colour}-{shape}.png").convert("RGB")])[0]
    found = {}
    for word in (colour, shape):
        cosines = tokens @ encoder.encode_texts([word])[0]
        found[word] = tokens[cosines >= ALPHA]
    return found, {word: len(kept) for word, kept in found.items()}


def test_words_alone_need_no_retriever_and_no_picture(run: Run, tmp_path: Path) -> None:
    forms = matched(run, tmp_path, "forms", 12, needs="forms", spec=None)
    assert forms.sums.vectors().shape == (7, 0) and forms.text_vectors == {}
    assert dict(zip(forms.keys, forms.items, strict=True))["box", "noun"] == 4, "no picture was opened"
    texts = matched(run, tmp_path, "texts", 5, needs="text_vectors", prompt="a photo of {}")
    assert sorted(texts.text_vectors) == texts.keys
    expected = Encoder(RetrieverSpec("tiny-64")).encode_texts(["a photo of red"])[0]
    np.testing.assert_allclose(texts.text_vectors["red", "adjective"], expected, atol=1e-5)


def test_sums_that_do_not_cover_every_picture_once_are_refused(run: Run, tmp_path: Path) -> None:
    matched(run, tmp_path, "m", 4)
    table = run.read("m")
    twice = [[*images, images[0]] if images else None for images in table["covers"].to_pylist()]
    table = table.set_column(table.schema.get_field_index("covers"), table.schema.field("covers"), pa.array(twice))
    run.ready("broken", Recipe({}))
    run.commit("broken", Recipe({}), tables.MATCHES, table, 0.0)
    with pytest.raises(RunError, match=r"broken: its sums cover 14 pictures where 11 were read"):
        word_totals(run, "broken")


def test_features_that_are_not_finite_are_a_status_row(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = VisualTokens.__call__

    def broken(self: VisualTokens, images: list[Image.Image]) -> np.ndarray:
        found = plain(self, images)
        found[0, 0] = np.nan
        return found

    monkeypatch.setattr(VisualTokens, "__call__", broken)
    totals = matched(run, tmp_path, "m", 12)
    bad = [
        row["image_id"]
        for row in run.read("m").to_pylist()
        if row["reason"] == "the retriever's features are not finite"
    ]
    assert bad == ["i00", "i04", "i08"], "the first of each four that are encoded together"
    assert np.isfinite(totals.sums.vectors()).all()
