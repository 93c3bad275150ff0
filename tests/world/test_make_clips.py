"""The made clips: the files, the truth of what looks alike, and that they depend on the arguments alone."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from repair_ray.data.clips import read_clips
from repair_ray.data.word_pairs import read_word_pairs
from repair_ray.engines.words import keywords, language
from repair_ray.world.clips import Motion, make_clips
from repair_ray.world.reports import REPORTS


@pytest.mark.parametrize("tongue", ["de", "en"])
def test_reports_are_well_formed(tongue: str) -> None:
    reports = REPORTS[tongue]
    everything = [word for words in reports.places.values() for word in words]
    assert len(set(everything)) == len(everything), "no word stands at two places"
    place = {word: name for name, words in reports.places.items() for word in words}
    assert all(len(words) % 2 == 0 for words in reports.places.values())
    assert all(place[one] == place[other] for one, other in reports.meaning)


@pytest.mark.parametrize("tongue", ["de", "en"])
def test_each_word_is_read_as_one_part_of_speech(tongue: str) -> None:
    reports, words = REPORTS[tongue], language("de" if tongue == "de" else "en")
    kinds = {"day": "noun", "place": "noun", "how": "adjective", "what": "noun", "number": "number"}
    chosen = {name: found[2] for name, found in reports.places.items()}
    wrong = 0
    for name, found in reports.places.items():
        for word in found:
            text = reports.template.format(**{**chosen, name: word})
            read = next(other for other in keywords(words.words(text)) if other.text == word)
            wrong += read.pos != kinds[name]
    assert wrong <= 0.03 * sum(map(len, reports.places.values())), "the tagger is a heuristic"


def test_files_and_splits(tmp_path: Path) -> None:
    make_clips(tmp_path, "en", 30, 10, 20, seed=3)
    found = read_clips(str(tmp_path / "clips.parquet"))
    assert [len(found.of(split)) for split in ("train", "validation", "test")] == [30, 10, 20]
    assert found.width == Motion().width and found.problems == []
    captions = [clip.captions[0] for clip in found.clips]
    assert len(set(captions)) == 60
    alike, meaning = (read_word_pairs(str(tmp_path / name)) for name in ("look_alike.csv", "mean_alike.csv"))
    assert {frozenset(pair) for pair in alike}.isdisjoint(frozenset(pair) for pair in meaning)
    assert sorted(word for pair in alike for word in pair) == sorted(
        word for words in REPORTS["en"].places.values() for word in words
    ), "each word has one that it is taken for"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clips.parquet", "look_alike.csv", "mean_alike.csv"]


def test_signs_of_pairs_look_alike(tmp_path: Path) -> None:
    """Without noise, transitions aside, frames are the signs themselves."""
    make_clips(tmp_path, "en", 200, 1, 1, seed=0, motion=Motion(noise=0.0, signer=0.0, frames=(1, 1)))
    template = REPORTS["en"].template
    signs: dict[str, np.ndarray] = {}
    for row in pq.read_table(tmp_path / "clips.parquet").to_pylist():
        words = [word for word in row["caption"].split() if word not in template.split()]
        assert len(row["features"]) == 2 * len(words) - 1
        for word, frame in zip(words, row["features"][::2], strict=True):
            np.testing.assert_allclose(signs.setdefault(word, np.array(frame)), frame, atol=1e-6)
    with (tmp_path / "look_alike.csv").open() as file:
        alike = {frozenset((row["word"], row["other"])) for row in csv.DictReader(file)}
    for one, first in signs.items():
        assert np.linalg.norm(first) == pytest.approx(1, abs=1e-5)
        for other, second in signs.items():
            if one < other:
                cosine = float(first @ second)
                assert (cosine > 0.9) if frozenset((one, other)) in alike else (abs(cosine) < 0.5)


def test_the_same_arguments_give_the_same_files(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make_clips(tmp_path / name, "de", 5, 1, 2, seed)
    one, same, other = (read_clips(str(tmp_path / name / "clips.parquet")).clips for name in "abc")
    assert [clip.captions for clip in one] == [clip.captions for clip in same] != [clip.captions for clip in other]
    assert all((a.features == b.features).all() for a, b in zip(one, same, strict=True))


def test_sizes_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="each split needs a clip"):
        make_clips(tmp_path, "en", 0, 1, 1, 0)
    with pytest.raises(ValueError, match="there are 30720 reports"):
        make_clips(tmp_path, "en", 40_000, 1, 1, 0)
