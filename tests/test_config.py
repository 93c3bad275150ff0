"""A wrong setting stops before any work, with the key's full name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from repair_ray.config import CONTROLS, Config, ConfigError, RoundsConfig, load_config, parse_config
from repair_ray.data.readers import READERS
from repair_ray.sections.data import Format

DATA = {"data": {"path": "pairs.parquet"}}


def write(folder: Path, text: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_yaml_and_defaults(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, "name: a\noutput: out\ndata: {path: x.parquet}\ntraining:\n  lr: 1e-4\n"))
    assert config.run_dir == Path("out/a")
    assert config.training.lr == 1e-4
    assert config.training.steps == 400 and config.mining.keep == "top_k" and config.base is None


def test_overrides(tmp_path: Path) -> None:
    path = write(tmp_path, "data: {path: x.parquet}\ntraining: {lr: 0.1}\nbase:\n")
    config = load_config(
        path,
        [
            "training.lr=1e-4",
            "training.steps=7",
            "mining.directions=[t2i]",
            "base.steps=3",
            "selection.audit=false",
            "training.grad_clip=null",
            "name=2e",
            "data.limit=10",
            "data.path=s3://bucket/a=b.parquet",
            "faults.poison={x: kill}",
        ],
    )
    assert (config.training.lr, config.training.steps) == (1e-4, 7)
    assert config.mining.directions == ("t2i",)
    assert config.base is not None and config.base.steps == 3
    assert config.selection.audit is False and config.training.grad_clip is None
    assert (config.name, config.data.limit, config.data.path) == ("2e", 10, "s3://bucket/a=b.parquet")
    assert config.faults.poison == {"x": "kill"}


def test_the_last_override_counts(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, "data: {path: x}"), ["seed=1", "seed=2"])
    assert config.seed == 2


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.lr", "'training.lr' is not of the form key=value"),
        ("=3", "'=3' is not of the form key=value"),
        ("training.lr=[1", "value is not YAML"),
        ("name.first=x", "name is a value, not a section"),
        ("training.lr=1e-4x", r"training\.lr='1e-4x': input should be a valid number"),
        ("training.sttps=3", r"unknown key 'training.sttps'; did you mean 'steps'\?"),
        ("base.lrr=3", r"unknown key 'base.lrr'; did you mean 'lr'\?"),
    ],
)
def test_bad_overrides(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(write(tmp_path, "name: run\ndata: {path: x}"), [override])


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"no config file at {tmp_path}/none.yaml"):
        load_config(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [("- a\n- b\n", "must hold a mapping of settings, not list"), ("", "not NoneType"), ("a: [", "is not YAML")],
)
def test_files_that_are_no_config(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(write(tmp_path, text))


def test_a_folder_and_bytes_are_no_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the config"):
        load_config(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\xd8")
    with pytest.raises(ConfigError, match="cannot read the config"):
        load_config(tmp_path / "binary.yaml")


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"minning": {}}, "unknown key 'minning'; did you mean 'mining'?"),
        ({"mining": {"kk": 3}}, "unknown key 'mining.kk'; did you mean 'k'?"),
        ({"evaluation": {"zzz": 3}}, "unknown key 'evaluation.zzz'; known keys here: bootstrap, split"),
        ({"training": {"steps": "many"}}, "training.steps='many': input should be a valid integer"),
        ({"training": {"steps": 0}}, "training.steps=0: input should be greater than or equal to 1"),
        ({"training": {"steps": 2.5}}, "training.steps=2.5: input should be a valid integer"),
        ({"training": {"betas": [0.9]}}, "training.betas.1"),
        ({"training": 3}, "training=3"),
        ({"mining": {"keep": "best"}}, "mining.keep='best': input should be 'top_k' or 'above_gt'"),
        ({"mining": {"directions": ["i2i"]}}, "mining.directions.0='i2i': input should be 'i2t' or 't2i'"),
        ({"mining": {"folds": 1}}, "mining.folds must be 0 (off) or at least 2"),
        ({"mining": {"index": "ivf", "shards": 2}}, "mining.shards splits a flat gallery"),
        ({"mining": {"min_recall": 1.5}}, "mining.min_recall=1.5"),
        ({"selection": {"alpha": 1.5}}, "selection.alpha=1.5: input should be less than or equal to 1"),
        ({"controls": ["everything"]}, "controls.0='everything'"),
        ({"name": "../up"}, "name='../up'"),
        ({"faults": {"poison": {"x": "shout"}}}, "faults.poison.x='shout'"),
    ],
)
def test_wrong_settings_name_the_key(tree: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({**DATA, **tree})
    assert message in str(caught.value)


def test_every_wrong_key_is_listed() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({**DATA, "training": {"steps": -1, "lr": 0}, "sed": 3}, source="my.yaml")
    assert str(caught.value).startswith("my.yaml: ")
    for part in ("training.steps=-1", "training.lr=0", "unknown key 'sed'; did you mean 'seed'?"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"mining": {"split": "test"}}, "mining.split and evaluation.split are both 'test'"),
        ({"evaluation": {"split": "train"}}, "evaluation.split='train': input should be 'validation' or 'test'"),
        ({"mining": {"split": "validation"}, "evaluation": {"split": "validation"}}, "are both 'validation'"),
        ({"mining": {"directions": []}}, "mining.directions=[]"),
        ({"seed": -1}, "seed=-1"),
        ({"base": {}, "retriever": {"pretrained": "openai"}}, "retriever.pretrained and base are both set"),
        ({"strategy": "vanilla", "controls": ["placement_local"]}, "placement_local places edited pairs"),
        ({"objective": {"push_only": True, "placement": "both"}}, "objective.push_only acts on local grids"),
        ({"edit": {"image_editor": "scene"}}, "edit.image_editor=scene edits the demo's scenes only"),
        ({"training": {"batch_size": 10, "workers": 3}}, "training.batch_size=10 does not divide over"),
        ({"base": {"batch_size": 10, "workers": 4}}, "base.batch_size=10 does not divide over base.workers=4"),
        (
            {"training": {"batch_size": 48, "workers": 2, "micro_batch": 16}},
            "training.micro_batch=16 does not divide the 24 that a worker has of training.batch_size=48",
        ),
        ({"base": {"workers": 2, "min_workers": 3}}, "base.min_workers=3 is more than base.workers=2"),
        (
            {"training": {"accelerator_type": "H100"}},
            "training.accelerator_type=H100 is a kind of GPU: set training.use_gpu=true",
        ),
        ({"training": {"storage": "s3://me:secret@bucket/states"}}, "training.storage holds credentials"),
        ({"training": {"storage": "s3://bucket/states?secret_key=a"}}, "training.storage holds credentials"),
    ],
)
def test_settings_that_contradict_each_other(tree: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({**DATA, **tree})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "nothing to read: set data.path"),
        ({"test": "x"}, "nothing to read"),
        ({"path": "x", "train": "y"}, "either data.path or one path a split"),
        ({"world": {}, "path": "x"}, "either data.world or data paths"),
        ({"world": {"trian": 3}}, "unknown key 'data.world.trian'; did you mean 'train'?"),
    ],
)
def test_data_comes_from_one_place(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({"data": data})
    assert message in str(caught.value)


def test_data_is_needed() -> None:
    with pytest.raises(ConfigError, match="data="):
        parse_config({})


def test_settings_do_not_change_after_loading() -> None:
    config = parse_config(DATA)
    with pytest.raises(ValidationError, match="frozen"):
        setattr(config.training, "steps", 3)  # noqa: B010


def test_a_config_survives_its_own_json() -> None:
    config = parse_config({**DATA, "controls": list(CONTROLS), "base": {}, "faults": {"poison": {"a": "raise"}}})
    assert Config.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    ("tree", "left_out"),
    [
        ({}, {"placement_local"}),
        ({"objective": {"placement": "dispersed"}}, {"placement_dispersed"}),
        ({"strategy": "mined"}, {"mined", "placement_local"}),
        (
            {"strategy": "vanilla"},
            {"vanilla_equal_steps", "placement_local", "placement_dispersed", "placement_both"},
        ),
    ],
)
def test_all_controls_are_those_that_differ_from_the_round(tree: dict[str, Any], left_out: set[str]) -> None:
    config = parse_config({**DATA, **tree, "controls": "all"})
    assert set(config.controls) == set(CONTROLS) - left_out
    assert parse_config({**DATA, "controls": "none"}).controls == ()


def test_every_format_has_its_reader() -> None:
    assert set(get_args(Format)) == set(READERS)


def test_a_variant_is_the_round_with_other_settings() -> None:
    made = parse_config(
        {
            "data": {"path": "x"},
            "selection": {"alpha": 0.4},
            "variants": {
                "no_audit": {"selection": {"audit": False}},
                "one_way": {"mining": {"directions": ["i2t"]}, "training": {"lr": 1e-3}},
                "negclip": {"strategy": "negclip", "objective": {"fine_grained": {"candidates": "batch"}}},
            },
        }
    )
    assert made.control_names == ("vanilla_equal_compute", "no_audit", "one_way", "negclip")
    without = made.control("no_audit")
    assert (without.selection.audit, without.selection.alpha) == (False, 0.4)
    assert without.mining == made.mining and without.variants == {} and without.controls == ()
    assert made.control("one_way").mining.directions == ("i2t",)
    assert made.control("one_way").training.steps == made.training.steps
    assert made.control("negclip").strategy == "negclip"
    assert made.control("vanilla_equal_compute").strategy == "vanilla"


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        ({"x": {"data": {"limit": 3}}}, r"variants\.x\.data: a variant may change only strategy, mining"),
        ({"x": {"mining": {"split": "validation"}}}, r"variants\.x\.mining\.split"),
        ({"x": {"selection": {"alfa": 1}}}, r"variants\.x: unknown key 'selection\.alfa'; did you mean 'alpha'"),
        ({"mined": {}}, r"variants\.mined: take another name"),
        ({"a/b": {}}, r"variants\.a/b: take another name"),
        (
            {"x": {"strategy": "san"}},
            r"variants\.x: strategy=san writes negative captions: set objective\.fine_grained",
        ),
    ],
)
def test_a_wrong_variant_is_refused_by_name(variants: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config({"data": {"path": "x"}, "variants": variants})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": {"fine_grained": True}}, "objective.fine_grained needs negative captions"),
        ({"strategy": "negclip"}, "strategy=negclip writes negative captions"),
        (
            {"strategy": "triplet", "objective": {"fine_grained": True}},
            r"strategy=triplet edits pictures: set edit\.image_editor",
        ),
        ({"objective": {"soft_labels": True}}, r"set teacher\.retriever or teacher\.features"),
        ({"teacher": {}}, r"set either teacher\.retriever or teacher\.features"),
        (
            {
                "objective": {"intra_modal": True},
                "teacher": {"retriever": {"model": "sentence-transformers:all-mpnet-base-v2"}},
            },
            r"sees texts only, and objective\.intra_modal",
        ),
        (
            {"objective": {"hard_negative_mixing": {"k": 64}}, "training": {"batch_size": 64}},
            r"hard_negative_mixing\.k=64: a batch of training\.batch_size=64 has at most 63",
        ),
        ({"training": {"freeze": ["both"]}}, r"training\.freeze"),
    ],
)
def test_terms_are_refused_where_what_they_need_is_not_there(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config({"data": {"path": "x"}, **settings})


def test_a_term_may_be_switched_on_with_its_defaults() -> None:
    objective = parse_config(
        {"data": {"path": "x"}, "objective": {"positive_mixing": True, "distill": False}}
    ).objective
    assert objective.positive_mixing is not None and objective.positive_mixing.margin == 0.1
    assert objective.distill is None and not objective.taught


def test_labels_are_plain_values_and_engines_with_them_lie_on_one_node() -> None:
    language = {"backend": "vllm", "model": "m", "pool": {"labels": {"pool": "language"}}}
    assert parse_config({**DATA, "language": language}).language.pool.labels == {"pool": "language"}
    two = {"engine": {"arguments": {"tensor_parallel_size": 2}}}
    with pytest.raises(ConfigError, match=r"language\.pool\.labels needs engines that lie on one node"):
        parse_config({**DATA, "language": language | two})
    two["engine"]["arguments"]["distributed_executor_backend"] = "mp"  # type: ignore[assignment]
    assert parse_config({**DATA, "language": language | two}).language.engine.workers == 2
    with pytest.raises(ConfigError, match=r"pool\.labels\.pool"):
        parse_config({**DATA, "pool": {"labels": {"pool": "!in(a, b)"}}})


class TestRounds:
    def test_a_number_is_short_for_the_section(self, tmp_path: Path) -> None:
        path = tmp_path / "run.yaml"
        path.write_text("data: {path: x}\nrounds: 4\n")
        assert load_config(path).rounds.number == 4
        assert load_config(path, ["rounds.min_gain=0.5"]).rounds == RoundsConfig(number=4, min_gain=0.5)
        later = load_config(path, ["rounds.min_gain=0.5", "rounds=2"]).rounds
        assert (later.number, later.min_gain) == (2, 0.5)

    def test_settings_from_a_round_on(self) -> None:
        changes = {3: {"training": {"lr": 1e-4}}, 2: {"mining": {"budget": 7}, "training": {"lr": 1e-3, "steps": 9}}}
        config = parse_config({"data": {"path": "x"}, "rounds": {"number": 4, "changes": changes}})
        assert config.of_round(1) is config
        second, fourth = config.of_round(2), config.of_round(4)
        assert (second.mining.budget, second.training.lr, second.training.steps) == (7, 1e-3, 9)
        assert (fourth.mining.budget, fourth.training.lr, fourth.training.steps) == (7, 1e-4, 9)
        # As config.json keeps it, where keys of a mapping are texts.
        assert parse_config(json.loads(config.model_dump_json())) == config

    @pytest.mark.parametrize(
        ("tree", "says"),
        [
            ({"strategy": "vanilla", "rounds": 2}, "strategy=vanilla works on no new failures"),
            ({"rounds": 2, "mining": {"folds": 2}}, "mining.folds=2 trains a retriever for each fold"),
            ({"rounds": 0}, "rounds.number=0"),
            ({"rounds": True}, "rounds"),
            ({"rounds": {"changes": {2: {"data": {}}}}}, "rounds.changes.2.data: a round may change only"),
            ({"rounds": {"changes": {2: {"strategy": "mined"}}}}, "rounds.changes.2.strategy"),
            ({"rounds": {"changes": {2: {"mining": {"split": "test"}}}}}, "rounds.changes.2.mining.split"),
            ({"rounds": {"changes": {2: {"training": {"lr": -1}}}}}, "rounds.changes.2: training.lr=-1"),
            ({"rounds": {"changes": {0: {}}}}, "rounds.changes.0"),
            ({"rounds": {"budget": {"gpu_hours": 0}}}, "rounds.budget.gpu_hours=0"),
        ],
    )
    def test_what_does_not_go_together(self, tree: dict[str, Any], says: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(says)):
            parse_config({"data": {"path": "x"}, **tree})
