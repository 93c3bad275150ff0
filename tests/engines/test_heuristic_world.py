"""The heuristic backend against the world's truth, which it cannot see."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from repair_ray.engines.editors import EditError
from repair_ray.engines.heuristic import HeuristicLanguage
from repair_ray.engines.language import Case
from repair_ray.world.captions import captions
from repair_ray.world.editor import edit_scene
from repair_ray.world.generate import random_scene, sibling
from repair_ray.world.scene import Scene
from repair_ray.world.truth import caption_difference, describes, edit_distance

CASES = 320


@dataclass(frozen=True)
class Failure:
    case: Case
    query: Scene
    candidate: Scene
    wrong: bool


@pytest.fixture(scope="module")
def failures() -> list[Failure]:
    rng = random.Random(20)
    return [failure(rng, near=k % 3 > 0, i2t=k % 2 == 0) for k in range(CASES)]


def failure(rng: random.Random, near: bool, i2t: bool) -> Failure:
    query = random_scene(rng)
    candidate = sibling(query, rng) if near else random_scene(rng)
    ours, theirs = tuple(captions(query, 1)), tuple(captions(candidate, 2))
    if i2t:
        text = rng.choice(theirs)
        return Failure(Case("i2t", ours, theirs, None, text), query, candidate, not describes(text, query))
    text = rng.choice(ours)
    return Failure(Case("t2i", ours, theirs, text), query, candidate, not describes(text, candidate))


def test_valid_is_precise_and_finds_most(failures: list[Failure]) -> None:
    backend = HeuristicLanguage()
    valid = [f.wrong for f in failures if backend.audit(f.case).judgement == "valid"]
    wrong = sum(f.wrong for f in failures)
    assert CASES > wrong > CASES // 2
    assert sum(valid) / len(valid) >= 0.97
    assert sum(valid) / wrong >= 0.9


def test_benign_matches_are_right(failures: list[Failure]) -> None:
    benign = [f for f in failures if HeuristicLanguage().audit(f.case).judgement == "benign_match"]
    assert benign
    assert not any(f.wrong for f in benign)


def test_no_ground_truth_is_called_bad(failures: list[Failure]) -> None:
    assert all(HeuristicLanguage().audit(f.case).judgement != "bad_ground_truth" for f in failures)


def test_ground_truth_of_another_scene_is_called_bad() -> None:
    rng = random.Random(3)
    found = []
    for _ in range(100):
        query, other, candidate = (random_scene(rng) for _ in range(3))
        text = captions(other, 1)[0]
        case = Case("t2i", (text, *captions(query, 1)[1:]), tuple(captions(candidate, 2)), text)
        if not describes(text, query):
            found.append(HeuristicLanguage().audit(case).judgement == "bad_ground_truth")
    assert sum(found) / len(found) >= 0.8


def test_edited_captions_are_true_and_small(failures: list[Failure]) -> None:
    backend = HeuristicLanguage()
    right, sizes = [], []
    for f in failures:
        if f.case.direction != "i2t":
            continue
        drafts = backend.edit_caption(f.case, backend.instruct(f.case, backend.audit(f.case)), 3)
        edited = [draft.text for draft in drafts]
        right += [describes(text, f.query) for text in edited]
        sizes += [caption_difference(f.case.candidate_text or "", text) for text in edited[:1]]
    assert len(sizes) > CASES // 5
    assert sum(right) / len(right) >= 0.95
    assert sum(sizes) / len(sizes) <= 2.5


def test_edited_scenes_satisfy_the_query_and_stay_near(failures: list[Failure]) -> None:
    backend = HeuristicLanguage()
    right, sizes = [], []
    for f in failures:
        instruction = backend.instruct(f.case, backend.audit(f.case))
        if f.case.direction != "t2i" or not instruction.feasible:
            continue
        try:
            edited = edit_scene(f.candidate, instruction.text, seed=0)
        except EditError:
            right.append(False)
            continue
        right.append(describes(f.case.query_text or "", edited))
        sizes.append(edit_distance(f.candidate, edited))
    assert len(sizes) > CASES // 5
    assert sum(right) / len(right) >= 0.95
    assert sum(sizes) / len(sizes) <= 2.0
