"""The form page as people use it, in headless Chromium."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from repair_ray.config import CRITERIA, Config
from repair_ray.repair_review.edits import ANSWERS, read_answers
from repair_ray.repair_review.sample import sample_of
from repair_ray.repair_review.stats import stats_of
from repair_ray.run import Run
from tests.browsing import violations
from tests.export import made_run
from tests.repair_review.conftest import TEN, TYPES, judge, say, served

pytestmark = pytest.mark.browser
Made = tuple[Run, Config]
EVIL = "<img src=x onerror=\"document.title='owned'\"> </script>"


@pytest.fixture
def allowed(address: str) -> tuple[str, ...]:
    return ("data:", address)


@pytest.fixture
def address(made: Made) -> Iterator[str]:
    with served(*made) as at:
        yield at


def checked(page: Any) -> dict[str, str]:
    return {field.get_attribute("name"): field.get_attribute("value") for field in page.locator("input:checked").all()}


def until(page: Any, script: str) -> None:
    """Wait for a condition; the page's policy forbids Playwright's own way to."""
    for _ in range(250):
        if page.evaluate(script):
            return
        page.wait_for_timeout(20)
    pytest.fail(f"not so after 5 seconds: {script}")


def settled(page: Any, done: int) -> None:
    """Wait until the last answer is kept, and the progress says so."""
    until(page, f"document.getElementById('done').textContent === '{done}'")
    assert page.locator("progress").evaluate("bar => [bar.value, bar.max]") == [done, 10]
    assert page.locator("#problem").inner_text() == ""


def test_ten_edits_by_two_annotators_with_the_keyboard(page: Any, made: Made, address: str) -> None:
    run, _ = made
    said = {
        "anna": ["yyyyy"] * 6 + ["nyyyy"] * 2 + ["ynyuy"] * 2,
        "ben": ["yyyyy"] * 5 + ["nyyyy"] * 3 + ["ynyyy"] * 2,
    }
    for name, answers in said.items():
        page.goto(f"{address}/")
        page.get_by_label(re.compile("name")).fill(name)
        page.keyboard.press("Enter")
        for number, letters in enumerate(answers, start=1):
            page.wait_for_url(f"{address}/as/{name}/at/{number}")
            assert checked(page) == {}
            for letter in letters:
                page.keyboard.press(letter)
            assert page.locator("#state").inner_text().startswith("All are answered.")
            if number < 10:
                # The link forward has the focus.
                page.keyboard.press("Enter")
        settled(page, 10)
    facts = stats_of(run)
    # valid: anna y6 n2 y2, ben y5 n3 y2: equal 9 of 10, by chance (8 * 7 + 2 * 3) of 100.
    (valid,) = facts["agreement"]["valid"]
    assert valid["n"] == 10 and valid["kappa"] == round((0.9 - 0.62) / (1 - 0.62), 4)
    assert facts["total"]["valid"]["precision"] | {"interval": None} == {
        "hits": 7, "of": 9, "percent": round(700 / 9, 3), "interval": None,
    }  # fmt: skip
    assert facts["total"]["matches"]["precision"]["percent"] == 80.0
    # minimal: two are unsure to anna.
    assert [(one["criterion"], one["number"]) for one in facts["disagreements"]] == [
        ("valid", 6), ("minimal", 9), ("minimal", 10),
    ]  # fmt: skip


def test_by_mouse_and_reload(page: Any, made: Made, address: str) -> None:
    run, _ = made
    page.goto(f"{address}/as/anna")
    for fieldset, answer in zip(page.locator("fieldset").all(), ("yes", "no", "unsure", "yes"), strict=False):
        fieldset.get_by_label(answer).click()
    assert page.locator("#state").inner_text() == "1 of 5 questions are open."
    page.get_by_role("link", name="forward").click()
    page.wait_for_url(f"{address}/as/anna/at/2")
    page.reload()
    page.keyboard.press("b")
    page.wait_for_url(f"{address}/as/anna/at/1")
    assert checked(page) == {"valid": "yes", "matches": "no", "scaffold": "unsure", "minimal": "yes"}
    # What lacks an answer is marked; an answer may be given anew.
    assert page.locator("fieldset.marked").get_attribute("data-question") == "contrast"
    page.keyboard.press("y")
    settled(page, 1)
    page.keyboard.press("2")
    page.keyboard.press("u")
    until(page, "document.activeElement.dataset.question === 'scaffold'")
    page.keyboard.press("o")
    page.wait_for_url(f"{address}/as/anna/at/2")
    item = sample_of(run, 1)[0]["item_id"]
    assert read_answers(run)["anna"][item] == dict(
        zip(CRITERIA, ("yes", "unsure", "unsure", "yes", "yes"), strict=True)
    )
    # A session that begins anew goes on there.
    page.goto(f"{address}/as/anna")
    assert page.url == f"{address}/as/anna/at/2"


def test_the_keys_of_radio_buttons_and_the_browsers_own_do_what_they_do(page: Any, address: str) -> None:
    page.goto(f"{address}/as/anna/at/1")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.keyboard.press("ArrowRight")
    until(page, "document.querySelector('input[name=valid]:checked').value === 'no'")
    page.keyboard.press("Control+f")
    page.keyboard.press("x")
    assert page.url.endswith("/at/1") and checked(page) == {"valid": "no"}
    # The first item has nothing before it.
    page.keyboard.press("b")
    assert page.url.endswith("/at/1")


def test_what_is_not_kept_is_not_shown_as_answered(browser: Any, made: Made) -> None:
    context = browser.new_context()
    page = context.new_page()
    with served(*made) as at:
        page.goto(f"{at}/as/anna/at/1")
        page.keyboard.press("y")
        until(page, "document.activeElement.dataset.question === 'matches'")
        page.wait_for_load_state("networkidle")
    page.keyboard.press("1")
    page.keyboard.press("n")
    until(page, "document.getElementById('problem').textContent !== ''")
    assert "Not kept" in page.locator("#problem").inner_text()
    assert checked(page) == {"valid": "yes"}
    page.keyboard.press("f")
    page.wait_for_timeout(200)
    assert page.url.endswith("/at/1"), "nobody leaves what is not kept without knowing"
    context.close()


def looked_at(browser: Any, address: str, scheme: str = "light") -> Any:
    """A page of another server than the fixture's; `said` holds what its console said."""
    made = browser.new_context(color_scheme=scheme).new_page()
    made.said = []
    made.on("console", lambda message: made.said.append(message.text))
    made.goto(address)
    return made


def test_captions_that_are_markup_stay_text(browser: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(made_run.CAPTIONS, "B1", EVIL)
    run, config = made_run.make_run(tmp_path, TEN)
    judge(run, {name: ["<b>object</b>"] for name in TYPES})
    say(run, "ben", {"f0": "yyyyy"})
    with served(run, config, everything=True) as at:
        page = looked_at(browser, f"{at}/")
        texts = []
        for number in range(1, 11):
            page.goto(f"{at}/as/anna/at/{number}")
            texts.append(page.locator("main").inner_text())
            assert "owned" not in page.title()
            assert page.locator("img:not([src^='data:'])").count() == 0
        assert page.said == []
        page.context.close()
    assert any("onerror" in text for text in texts) and all("<b>object</b>" in text for text in texts)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("everything", [False, True])
def test_names_and_contrast(browser: Any, made: Made, scheme: str, everything: bool) -> None:
    found = []
    say(made[0], "ben", dict.fromkeys(TEN.keys() - {"paired", "too_far"}, "ynuyn"))
    with served(*made, everything=everything) as at:
        page = looked_at(browser, f"{at}/", scheme)
        found += violations(page)
        for number in (1, 10):
            page.goto(f"{at}/as/anna/at/{number}")
            page.keyboard.press("y")
            page.keyboard.press("n")
            found += violations(page)
        shade = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.context.close()
    assert found == []
    assert shade == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 26)"}[scheme]


@pytest.mark.parametrize("width", [320, 360, 768])
def test_a_phone_scrolls_in_one_direction(page: Any, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 700})
    for place in ("/", "/as/anna/at/1", "/as/anna/at/10", "/as/" + "x" * 64 + "/at/5"):
        page.goto(f"{address}{place}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, place


def test_the_focus_is_seen(page: Any, made: Made, address: str) -> None:
    page.goto(f"{address}/as/anna/at/1")
    for _ in range(7):  # the five questions, forward, next open
        page.keyboard.press("Tab")
        # A hidden radio button shows its focus on its label.
        style = page.evaluate(
            """() => {
              const at = document.activeElement;
              const seen = at.matches("input") ? at.nextElementSibling : at;
              return [getComputedStyle(seen).outlineStyle, parseFloat(getComputedStyle(seen).outlineWidth)];
            }"""
        )
        assert style[0] == "solid" and style[1] >= 2
    assert (made[0].path(ANSWERS) / "anna.jsonl").read_text() == ""
