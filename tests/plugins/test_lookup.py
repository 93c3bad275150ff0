"""Plugins are found by name; what is wrong with one is said by name of its package."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import get_protocol_members

from repair_ray.config import Config, ConfigError, parse_config
from repair_ray.engines.editors import ImageEditor
from repair_ray.engines.language import Case, Judge, Verdict
from repair_ray.engines.registry import image_editor, language_backend
from repair_ray.engines.strategies import Strategy
from repair_ray.finetune import PLAIN
from repair_ray.plugins import EDITORS, JUDGES, KINDS, STRATEGIES, TERMS, PluginError, identity, load, read_settings
from repair_ray.stages.questions import recipe_of
from repair_ray.training.objective import Term
from tests.plugins.installed import ACME, POINTS, install, install_acme

DATA = {"data": {"path": "pairs.parquet"}}
JUDGE = "class Judge:\n    def __init__(self, settings): pass\n    def audit(self, case): return case\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.fixture
def acme(site: Path) -> Path:
    install_acme(site)
    return site


def refused(tree: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config({**DATA, **tree})
    return str(caught.value)


def test_what_each_kind_needs_is_what_its_protocol_says() -> None:
    for kind, protocol in ((EDITORS, ImageEditor), (JUDGES, Judge), (STRATEGIES, Strategy), (TERMS, Term)):
        assert set(kind.needs) == get_protocol_members(protocol)


def test_the_package_of_the_tests_says_the_same_by_hand_and_in_its_project() -> None:
    assert tomllib.loads((ACME / "pyproject.toml").read_text())["project"]["entry-points"] == POINTS


@pytest.mark.parametrize(
    ("tree", "key"),
    [
        ({"edit": {"image_editor": "nope"}}, "edit.image_editor: there is no image editor 'nope'; there are none, "),
        ({"language": {"backend": "nope"}}, "language.backend: there is no judge 'nope'; there are heuristic, "),
        ({"audit": {"language": {"backend": "nope"}}}, "audit.language.backend: there is no judge 'nope'"),
        ({"strategy": "nope"}, "config: there is no strategy 'nope'; there are repair, "),
        ({"objective": {"plugged": {"nope": {}}}}, "objective.nope: there is no term 'nope'; there are soft_labels, "),
    ],
)
def test_an_unknown_name_lists_what_there_is(acme: Path, tree: dict[str, Any], key: str) -> None:
    told = refused(tree)
    assert key in told
    assert "(of acme-repair 1.0)" in told


def test_an_unknown_term_lists_those_of_packages_among_the_keys(acme: Path) -> None:
    assert "did you mean 'spread'?" in refused({"objective": {"spraed": True}})


def test_two_packages_of_one_name_are_both_named(acme: Path) -> None:
    install(acme, "other", {"repair_ray.judges": {"lenient": "other:Judge"}}, other=JUDGE)
    told = refused({"language": {"backend": "lenient"}})
    assert "acme-repair 1.0 and other 1.0 both offer the judge 'lenient'" in told


def test_a_built_in_name_is_never_taken_over(site: Path) -> None:
    install(site, "taker", {"repair_ray.judges": {"heuristic": "taker:Judge"}}, taker=JUDGE)
    backend = language_backend(parse_config(DATA).language)
    assert type(backend).__name__ == "HeuristicLanguage"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import nowhere_at_all\n", "cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("1 / 0\n", "cannot be imported: ZeroDivisionError: division by zero"),
        ("class Other: pass\n", "cannot be imported: AttributeError: module 'bad{n}' has no attribute 'Judge'"),
        ("class Judge: pass\n", "has no audit, which each judge must have"),
        ("def Judge(settings): pass\n", "is 'function', and must be a class"),
    ],
)
def test_a_plugin_that_is_none_names_its_package_and_the_cause(
    site: Path, source: str, said: str, request: pytest.FixtureRequest
) -> None:
    number = abs(hash(request.node.name))  # a module of its own: Python imports each name once
    points = {"repair_ray.judges": {"b": f"bad{number}:Judge"}}
    install(site, "bad-one", points, version="2", **{f"bad{number}": source})
    told = refused({"language": {"backend": "b"}})
    assert f"the judge 'b' of bad-one 2 (bad{number}:Judge) " in told
    assert said.format(n=number) in told


def test_a_strategy_lacks_two_things(site: Path) -> None:
    install(site, "s", {"repair_ray.strategies": {"s": "empty_strategy:S"}}, empty_strategy="class S: pass\n")
    assert "has no works_on and no drafts, which each strategy must have" in refused({"strategy": "s"})


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (
            {"edit": {"image_editor": "mirror", "image_editor_settings": {"quality": 0}}},
            "edit.image_editor_settings: quality=0: input should be greater than or equal to 1",
        ),
        (
            {"language": {"backend": "lenient", "backend_settings": {"sure": 1}}},
            "language.backend_settings: unknown key 'sure'; known keys here: confidence, unsure_of",
        ),
        ({"objective": {"spread": {"power": "x"}}}, "objective.spread: power='x': input should be a valid integer"),
        ({"objective": {"spread": {"weight": -1}}}, "objective.plugged.spread.weight=-1"),
        ({"objective": {"spread": 3}}, "objective.spread=3: give its settings, or true, or false"),
        ({"edit": {"image_editor_settings": {"quality": 5}}}, "edit.image_editor_settings: quality: none is built in"),
        ({"strategy_settings": {"a": 1}}, "strategy_settings: a: repair is built in"),
    ],
)
def test_a_wrong_setting_names_its_key(acme: Path, tree: dict[str, Any], said: str) -> None:
    assert said in refused(tree)


def test_settings_without_a_model_are_given_as_they_are(acme: Path) -> None:
    assert read_settings(STRATEGIES, "prefixed", {"prefix": "a", "b": [1]}) == {"prefix": "a", "b": [1]}
    assert load(STRATEGIES, "prefixed").works_on == "failures"


def test_a_judge_that_only_audits_cannot_edit(acme: Path) -> None:
    told = refused({"language": {"backend": "lenient"}})
    assert "language.backend=lenient has no instruct and no edit_caption, which strategy=repair needs" in told
    assert "audit.language.backend" in told
    assert config(audit={"language": {"backend": "lenient"}}).audit.language is not None
    assert config(strategy="mined", language={"backend": "lenient"}).strategy == "mined"


def config(**sections: Any) -> Config:
    return parse_config({**DATA, **sections})


def test_what_a_strategy_writes_decides_what_the_objective_needs(acme: Path) -> None:
    assert "strategy=shuffled writes negative captions: set objective.fine_grained" in refused({"strategy": "shuffled"})
    assert config(strategy="shuffled", objective={"fine_grained": True}).works_on == "captions"
    assert "strategy=prefixed writes none" in refused({"strategy": "prefixed", "objective": {"fine_grained": True}})
    assert config(strategy="prefixed", rounds=2).rounds.number == 2
    told = refused({"strategy": "shuffled", "objective": {"fine_grained": True}, "rounds": 2})
    assert "strategy=shuffled works on no new failures" in told


def test_a_config_comes_back_from_what_it_is_written_as(acme: Path) -> None:
    made = config(
        strategy="prefixed",
        strategy_settings={"prefix": "x"},
        audit={"language": {"backend": "lenient", "backend_settings": {"confidence": 0.25}}},
        edit={"image_editor": "mirror", "image_editor_settings": {"quality": 50}},
        objective={"spread": {"weight": 0.5, "power": 4}},
        controls=["mined"],
    )
    assert parse_config(made.model_dump(mode="json")) == made
    assert made.objective.plugged["spread"].settings == {"power": 4}
    # A control has another strategy, and none of this one's settings.
    assert made.control("mined").strategy_settings == {}


def test_variants_change_one_setting_of_a_term_or_take_it_out(acme: Path) -> None:
    made = config(
        objective={"spread": {"weight": 0.5, "power": 4}},
        variants={"light": {"objective": {"spread": {"weight": 0.1}}}, "none": {"objective": {"spread": None}}},
    )
    light = made.control("light").objective.plugged["spread"]
    assert (light.weight, light.settings) == (0.1, {"power": 4})
    assert made.control("none").objective.plugged == {}


def test_without_plugins_nothing_is_told_of_them() -> None:
    dumped = config().model_dump(mode="json")
    assert "strategy_settings" not in dumped
    assert "backend_settings" not in dumped["language"] and "image_editor_settings" not in dumped["edit"]
    assert "plugged" not in dumped["objective"] and "plugged" not in PLAIN.model_dump(mode="json")
    assert "plugin" not in recipe_of(config().language) and "plugin" not in config().edit.recipe


def test_recipes_hold_name_package_and_version(acme: Path) -> None:
    made = config(audit={"language": {"backend": "lenient"}}, edit={"image_editor": "mirror"})
    assert made.audit.language is not None
    assert recipe_of(made.audit.language)["plugin"] == {"name": "lenient", "package": "acme-repair", "version": "1.0"}
    assert made.edit.recipe["plugin"]["name"] == "mirror"
    install_acme(acme, version="1.1")
    assert made.edit.recipe["plugin"]["version"] == "1.1"
    assert identity(EDITORS, "scene") == {}


def test_what_judges_answer_is_checked(acme: Path) -> None:
    language = config(strategy="mined", language={"backend": "lenient", "backend_settings": {"confidence": 0.25}})
    backend = language_backend(language.language)
    assert backend is not None and backend.name == "lenient"
    case = Case("i2t", ("a cat",), ("a dog",), candidate_text="a dog")
    assert backend.audit(case) == Verdict("valid", confidence=0.25)
    install(acme, "wrong", {"repair_ray.judges": {"wrong": "wrong_judge:Judge"}}, wrong_judge=JUDGE)
    wrong = language_backend(config(strategy="mined", language={"backend": "wrong"}).language)
    assert wrong is not None
    with pytest.raises(TypeError, match="the judge 'wrong' answers with Case, not Verdict"):
        wrong.audit(case)
    wrong._judge.audit = lambda case: Verdict("fine")  # type: ignore[attr-defined, arg-type]
    with pytest.raises(ValueError, match="says 'fine'; a judgement is one of valid, benign_match"):
        wrong.audit(case)


def test_an_editor_gets_its_settings_and_the_runs_eyes(acme: Path) -> None:
    made = config(edit={"image_editor": "mirror", "image_editor_settings": {"quality": 7}}).edit
    editor = image_editor("mirror", made.diffusion, lambda data: data, settings=made.image_editor_settings)  # type: ignore[arg-type, return-value]
    assert editor is not None and editor.quality == 7  # type: ignore[attr-defined]
    with pytest.raises(PluginError, match="there is no image editor 'gone'"):
        image_editor("gone", made.diffusion, lambda data: data)  # type: ignore[arg-type, return-value]


def test_all_groups_are_of_this_package() -> None:
    names = ("editors", "judges", "strategies", "terms")
    assert [kind.group for kind in KINDS] == [f"repair_ray.{name}" for name in names]
