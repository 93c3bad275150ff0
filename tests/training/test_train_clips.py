"""Training on clips: what is learnt, what negatives add, determinism, the best weights, and figures by equal texts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from repair_ray.data.clips import Clip
from repair_ray.engines.clip_tower import ClipArchitecture, ClipRetriever
from repair_ray.sections.clips import ClipTrainingConfig
from repair_ray.training.clips import FineTerm, Pair, clip_metrics, mean_r1, train_clips

WORDS = ("regen", "schnee", "wind", "nebel")
ARCHITECTURE = ClipArchitecture(6, 16, 0, 2, "words", None, "de", WORDS)
QUICK = ClipTrainingConfig(steps=60, batch_size=8, lr=1e-2, validate_every=20)


def signs() -> dict[str, np.ndarray]:
    """Four signs; rain and snow look almost alike."""
    draw = np.random.default_rng(1)
    found = {word: draw.normal(size=6) for word in WORDS}
    found["schnee"] = found["regen"] + 0.4 * draw.normal(size=6)
    return found


def clip(number: int, first: str, second: str, split: str = "train") -> Clip:
    draw = np.random.default_rng(number)
    shown = np.stack([signs()[word] for word in (first, first, second, second)])
    features = (shown + 0.1 * draw.normal(size=shown.shape)).astype(np.float32)
    return Clip(f"c{number}", split, (f"{first} {second}",), features)


PAIRS = [(one, other) for one in WORDS for other in WORDS if one < other]
CLIPS = [clip(n, *PAIRS[n % len(PAIRS)]) for n in range(24)]


def trained(**changes: object) -> tuple[ClipRetriever, dict[str, object]]:
    retriever = ClipRetriever(ARCHITECTURE, 0)
    return retriever, train_clips(retriever, CLIPS, QUICK, **changes)  # type: ignore[arg-type]


def test_it_learns_and_does_so_again() -> None:
    before = mean_r1(ClipRetriever(ARCHITECTURE, 0), CLIPS)
    one, record = trained(seed=5)
    same, again = trained(seed=5)
    other, _ = trained(seed=6)
    assert mean_r1(one, CLIPS) > before + 20
    assert record == again
    for name, value in one.state_dict().items():
        assert torch.equal(value, same.state_dict()[name])
    assert not torch.equal(one.tower.project.weight, other.tower.project.weight)
    history = record["history"]
    assert isinstance(history, list) and [row["step"] for row in history] == [20, 40, 60]
    assert history[-1]["infonce"] < history[0]["infonce"] and "fine_grained" not in history[0]


def fine_term(weight: float = 1.0, drawn: int = 2) -> FineTerm:
    """Rain for snow, and the other way."""
    turned = {"regen": "schnee", "schnee": "regen"}
    negatives: dict[Pair, list[str]] = {}
    for place, one in enumerate(CLIPS):
        words = one.captions[0].split()
        negatives[place, 0] = [
            " ".join([*words[:n], turned[word], *words[n + 1 :]]) for n, word in enumerate(words) if word in turned
        ]
    return FineTerm(negatives, drawn, weight)


def confusion(retriever: ClipRetriever) -> float:
    """The mean cross-entropy of each clip's caption against its negatives, by numpy."""
    losses = []
    for (place, _), negatives in fine_term().negatives.items():
        if negatives:
            texts = retriever.encode_texts([*CLIPS[place].captions, *negatives])
            scores = texts @ retriever.encode_clips([CLIPS[place].features])[0] * np.exp(retriever.logit_scale.item())
            losses.append(np.log(np.exp(scores - scores[0]).sum()))
    return float(np.mean(losses))


def test_negatives_tell_apart_what_looks_alike() -> None:
    longer = QUICK.model_copy(update={"steps": 200})
    found = {}
    for name, term in (("plain", None), ("fine", fine_term()), ("none", fine_term(weight=0.0))):
        retriever = ClipRetriever(ARCHITECTURE, 0)
        record = train_clips(retriever, CLIPS, longer, fine=term)
        found[name] = confusion(retriever)
        history = record["history"]
        assert ("fine_grained" in history[0]) == (term is not None)
    assert found["fine"] < 0.2 * found["plain"]
    assert history[-1]["fine_grained"] == 0 and found["none"] == pytest.approx(found["plain"], rel=1e-3)


def test_captions_without_a_negative_do_not_count() -> None:
    retriever, record = trained(fine=FineTerm({}, 4, 1.0))
    history = record["history"]
    assert isinstance(history, list) and history[0]["fine_grained"] == 0
    assert all(torch.isfinite(value).all() for value in retriever.state_dict().values())


def test_the_best_weights_on_validation_win() -> None:
    wrong = [Clip(f"v{n}", "validation", one.captions, -one.features) for n, one in enumerate(CLIPS[:6])]
    retriever, record = trained(validation=wrong)
    history = record["history"]
    assert isinstance(history, list)
    figures = [row["validation"] for row in history]
    assert record["best_step"] == 20 * (1 + int(np.argmax(figures)))
    assert mean_r1(retriever, wrong) == max(figures)


def test_a_caption_is_right_of_each_clip_that_has_its_text() -> None:
    retriever, _ = trained()
    twice = [CLIPS[0], clip(90, *PAIRS[0]), CLIPS[1]]
    found = clip_metrics(retriever, twice, bootstrap=10)
    assert found["i2t"]["n"] == 3 and found["t2i"]["n"] == 3
    assert found["i2t"]["r@1"] == 100, "both captions that say the same are right of both clips"


def test_equal_captions_in_a_batch_are_not_pushed_apart() -> None:
    same = [Clip(f"s{n}", "train", ("regen wind",), CLIPS[0].features) for n in range(8)]
    retriever = ClipRetriever(ARCHITECTURE, 0)
    record = train_clips(retriever, same, ClipTrainingConfig(steps=3, batch_size=8, validate_every=1))
    assert [row["infonce"] for row in record["history"]] == [0, 0, 0]
