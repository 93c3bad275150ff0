"""Text-only training: which texts a step sees, what one step minimises, and that workers make no difference."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import open_clip
import pyarrow as pa
import pytest
import torch
from torch import Tensor, nn

from repair_ray import tables
from repair_ray.config import TextObjectiveConfig, TextTrainingConfig
from repair_ray.engines.encoder import Preprocess, build_model
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.training.texts.batches import TextLoader, TextPlan, TextSet, text_set
from repair_ray.training.texts.trainer import TextTrainer
from repair_ray.training.texts.validation import NO_ORDER, StsValidator
from tests.training import text_worker

Objective = TextObjectiveConfig.model_validate


class TestPlan:
    def test_an_epoch_is_every_text_once(self) -> None:
        plan = TextPlan(10, 4, seed=1)
        items = np.concatenate([plan.step(step).items for step in range(5)])
        assert sorted(items[:10].tolist()) == sorted(items[10:].tolist()) == list(range(10))
        assert items[:10].tolist() != items[10:].tolist()

    @pytest.mark.parametrize("workers", [2, 3])
    def test_workers_share_the_batch_of_one(self, workers: int) -> None:
        one = TextPlan(9, 7, seed=2)
        many = [TextPlan(9, 7, seed=2) for _ in range(workers)]
        for step in (3, 0, 1):
            parts = [plan.step(step, rank, workers) for rank, plan in enumerate(many)]
            assert np.concatenate([part.items for part in parts]).tolist() == one.step(step).items.tolist()
            assert [part.start for part in parts] == np.cumsum([0, *(len(part.items) for part in parts[:-1])]).tolist()
            assert {part.total for part in parts} == {7}

    def test_fewer_texts_than_a_batch_or_than_workers(self) -> None:
        assert sorted(TextPlan(3, 64, 0).step(0).items.tolist()) == [0, 1, 2]
        with pytest.raises(ValueError, match=r"do not go round 4 workers; lower training\.workers"):
            TextPlan(3, 64, 0).step(0, 0, 4)


def test_text_set_keeps_usable_rows_and_knows_positives() -> None:
    rows: list[dict[str, object]] = [
        {"text_id": "a", "group_id": "g", "text": "One.", "text_key": "one", "source": "x:1", "status": "ok"},
        {"text_id": "b", "group_id": "b", "source": "x:2", "status": "error", "reason": "no_text"},
        {"text_id": "c", "group_id": "c", "text": "one", "text_key": "one", "source": "x:3", "status": "ok"},
        {"text_id": "d", "group_id": "g", "text": "Two", "text_key": "two", "source": "x:4", "status": "ok"},
        {"text_id": "e", "group_id": "e", "text": "Three", "text_key": "three", "source": "x:5", "status": "ok"},
    ]
    found = text_set(pa.table(tables.to_table(rows, tables.TEXTS.schema)))
    assert found.texts == ["One.", "one", "Two", "Three"]
    every = np.arange(4)
    expected = [[1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]]
    assert found.known(every, every).astype(int).tolist() == expected
    assert found.known(np.array([2]), every).astype(int).tolist() == [expected[2]]


class Lookup(nn.Module):
    """A dual encoder whose text features are its parameters, times a dropout of its own."""

    def __init__(self, items: int = 6, width: int = 5, rate: float = 0.5) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.visual = nn.Linear(2, 2)
        self.text = nn.Sequential(nn.Embedding(items, width), nn.Dropout(rate))
        self.logit_scale = nn.Parameter(torch.tensor(3.0))

    def encode_text(self, tokens: Tensor, normalize: bool = False) -> Tensor:
        return nn.functional.normalize(self.text(tokens[:, 0]), dim=-1)


def one_step(
    objective: TextObjectiveConfig, keys: list[int], **changes: object
) -> tuple[TextTrainer, dict[str, float]]:
    config = TextTrainingConfig.model_validate({"steps": 10, "batch_size": 6, "lr": 0.1, "warmup": 0.0, **changes})
    texts = TextSet([str(n) for n in range(6)], np.array(keys), np.arange(6))
    trainer = TextTrainer(Lookup(), texts, config, objective, seed=4)
    batch = TextPlan(6, 6, 4).step(0)
    report = trainer.step(0, batch, torch.from_numpy(batch.items)[:, None].expand(-1, 3))
    assert (report.images, report.texts) == (0, 12)
    return trainer, report.losses


class TestStep:
    def test_loss_is_simcse_of_both_passes(self) -> None:
        keys = [0, 1, 2, 3, 4, 0]  # texts 0 and 5 are the same
        trainer, losses = one_step(Objective({"temperature": 0.2}), keys)
        # The same passes once more: the tower's own dropout is drawn from the seed, the step and nothing else.
        model, batch = Lookup().train(), TextPlan(6, 6, 4).step(0)
        trainer.dropout.begin(trainer.dropout_seed(0), 0, 6, 6, "cpu")
        one, other = model.encode_text(torch.from_numpy(batch.items).repeat(2)[:, None]).double().chunk(2)
        cosines = (one @ other.T).detach().numpy() / 0.2
        expected = 0.0
        for i in range(6):
            same = [keys[batch.items[i]] == keys[batch.items[j]] for j in range(6)]
            shares = [math.exp(cosines[i, j]) for j in range(6) if i == j or not same[j]]
            expected -= math.log(math.exp(cosines[i, i]) / sum(shares)) / 6
        assert losses == {"simcse": pytest.approx(expected, rel=1e-5)}

    def test_terms_that_are_set_are_added_with_their_weights(self) -> None:
        keys = list(range(6))
        tree = {"positive_mixing": {"margin": 9.0}, "hard_negative_mixing": {"k": 3, "pairs": 4}}
        _, whole = one_step(Objective(tree), keys)
        assert set(whole) == {"simcse", "positive_mixing", "hard_negative_mixing"}
        assert whole["hard_negative_mixing"] > whole["simcse"]  # it has further negatives
        _, plain = one_step(Objective({}), keys)
        assert plain == {"simcse": whole["simcse"]}
        tree = {"simcse_weight": 0, "hard_negative_mixing": {"k": 3, "pairs": 4, "weight": 0.5}}
        _, half = one_step(Objective(tree), keys)
        assert half == {"hard_negative_mixing": pytest.approx(whole["hard_negative_mixing"] / 2)}

    def test_only_the_text_tower_is_trained(self) -> None:
        trainer, _ = one_step(Objective({}), list(range(6)))
        before, after = Lookup().state_dict(), trainer.model.state_dict()
        changed = {name for name in before if not torch.equal(before[name], after[name])}
        assert changed == {"text.0.weight"}

    def test_steps_lower_the_loss_of_a_real_tower(self) -> None:
        texts = [f"{a} {b}" for a in ("red", "blue", "green", "black") for b in ("circle", "square", "star")]
        model = build_model(RetrieverSpec("tiny-64"))
        config = TextTrainingConfig(steps=6, batch_size=12, lr=1e-3, warmup=0.0)
        items = np.arange(len(texts))
        trainer = TextTrainer(model, TextSet(texts, items, items), config, Objective({}), seed=0)
        loader = TextLoader(TextPlan(12, 12, 0), texts, Preprocess(model, "tiny-64"))
        losses = [trainer.step(step, *loader.step(step)).losses["simcse"] for step in range(6)]
        assert losses[-1] < losses[0] - 0.3

    def test_bfloat16(self) -> None:
        texts = ["a red circle", "a blue square", "two stars"]
        model = build_model(RetrieverSpec("tiny-64"))
        config = TextTrainingConfig(steps=2, batch_size=3, precision="bf16")
        objective = Objective({"positive_mixing": True, "hard_negative_mixing": {"k": 2}})
        trainer = TextTrainer(model, TextSet(texts, np.arange(3), np.arange(3)), config, objective, seed=0)
        loader = TextLoader(TextPlan(3, 3, 0), texts, Preprocess(model, "tiny-64"))
        assert all(math.isfinite(loss) for loss in trainer.step(0, *loader.step(0)).losses.values())

    @pytest.mark.transformers
    def test_a_hugging_face_tower_trains_with_its_own_dropout(self, tmp_path: Path) -> None:
        transformers = pytest.importorskip("transformers", reason="transformers is not installed")
        small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
        transformers.BertConfig(vocab_size=200, hidden_dropout_prob=0.3, **small).save_pretrained(tmp_path)
        model = open_clip.CustomTextCLIP(
            embed_dim=8,
            vision_cfg={"image_size": 16, "layers": 1, "width": 16, "head_width": 8, "patch_size": 8},
            text_cfg={
                "hf_model_name": str(tmp_path),
                "hf_model_pretrained": False,
                "hf_proj_type": "linear",
                "hf_pooler_type": "mean_pooler",
            },
        )
        tokens = torch.randint(1, 200, (4, 9), generator=torch.Generator().manual_seed(0))
        items = np.arange(4)
        config = TextTrainingConfig(steps=3, batch_size=4, lr=1e-2, warmup=0.0)
        trainer = TextTrainer(model, TextSet(["text"] * 4, items, items), config, Objective({}), seed=1)
        # The same step over and over, and so the same dropout.
        losses = [trainer.step(0, TextPlan(4, 4, 0).step(0), tokens).losses["simcse"] for _ in range(3)]
        assert losses[2] < losses[0]
        assert all(p.grad is not None for name, p in model.named_parameters() if name.startswith("text."))


class TestWorkers:
    """Two gloo processes with a real tower and its dropout: the losses and gradients of one."""

    @pytest.fixture(scope="class")
    def one(self) -> dict[str, np.ndarray]:
        return text_worker.run(0, 1)

    @pytest.fixture(scope="class")
    def two(self, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, np.ndarray]]:
        folder = tmp_path_factory.mktemp("gloo")
        outputs = [folder / f"{rank}.npz" for rank in range(2)]
        program = [sys.executable, str(text_worker.__file__)]
        processes = [
            subprocess.Popen(
                [*program, str(rank), "2", str(folder / "meeting"), str(output)], stderr=subprocess.PIPE, text=True
            )
            for rank, output in enumerate(outputs)
        ]
        for process in processes:
            try:
                _, errors = process.communicate(timeout=300)
            except subprocess.TimeoutExpired:
                for other in processes:
                    other.kill()
                raise
            assert process.returncode == 0, errors[-3000:]
        return [dict(np.load(output)) for output in outputs]

    def test_losses_and_gradients_are_equal(self, one: dict[str, np.ndarray], two: list[dict[str, np.ndarray]]) -> None:
        assert [int(part["items"]) for part in two] == [3, 4]
        assert {name for name in one if "/" not in name} == {
            "items",
            "simcse",
            "positive_mixing",
            "hard_negative_mixing",
        }
        for name in one.keys() - {"items"}:
            for rank, part in enumerate(two):
                # And with gradient caching, two texts at a time.
                for found in (part[name], part[f"cached/{name}"]):
                    np.testing.assert_allclose(found, one[name], atol=2e-5, rtol=1e-3, err_msg=f"{name} of rank {rank}")
        assert sum(np.abs(value).max() > 1e-3 for name, value in one.items() if "/" in name) > 10


class Fixed(nn.Module):
    """Gives features that were set beforehand, in the order in which texts come."""

    def __init__(self, features: Tensor) -> None:
        super().__init__()
        self.features, self.modes = features, list[bool]()

    def encode_text(self, tokens: Tensor, normalize: bool = False) -> Tensor:
        self.modes.append(self.training)
        part, self.features = self.features[: len(tokens)], self.features[len(tokens) :]
        return part


class TestValidation:
    @pytest.fixture(scope="class")
    def validator(self) -> StsValidator:
        preprocess = Preprocess(build_model(RetrieverSpec("tiny-64")), "tiny-64")
        return StsValidator(
            ["a", "b", "c", "d"], ["e", "f", "g", "h"], np.array([1.0, 3.0, 2.0, 4.0]), preprocess, "cpu"
        )

    def test_score_by_hand(self, validator: StsValidator) -> None:
        # Cosines 0, 0.6, 0.8, 1 against scores 1, 3, 2, 4: one exchange of neighbours of four, 0.8.
        first = torch.tensor([[2.0, 0]] * 4)
        second = torch.tensor([[0.0, 1], [0.6, 0.8], [1.6, 1.2], [1, 0]])
        model = Fixed(torch.cat([first, second])).train()
        assert validator.score(model, batch_size=3) == pytest.approx(80)
        assert model.training, "the model goes on training"
        assert not any(model.modes), "and was not training while it was scored"

    @pytest.mark.parametrize("value", [1.0, math.nan])
    def test_features_without_an_order_score_least(self, validator: StsValidator, value: float) -> None:
        assert validator.score(Fixed(torch.full((8, 2), value))) == NO_ORDER
