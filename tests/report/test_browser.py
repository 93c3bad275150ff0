"""The report as people use it, from a file, in headless Chromium."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from repair_ray.report.html import write_report
from tests.browsing import violations
from tests.report.evaluated_run import evaluated_summary, make_evaluated
from tests.report.test_html_report import DATA, make_run, summary

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_report(make_evaluated(tmp_path_factory.mktemp("run")), evaluated_summary(), DATA).as_uri()


@pytest.fixture(scope="module")
def other_address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Failures, grids, connectivity, truth, training, bad rows."""
    return write_report(make_run(tmp_path_factory.mktemp("run")), summary(), DATA).as_uri()


def hits(page: Any) -> list[str]:
    """The first caption of each card."""
    return [card.locator("ul > li > span[dir]").first.inner_text() for card in page.locator("#search-hits > li").all()]


def test_words_find_captions_and_pictures(page: Any, address: str) -> None:
    page.goto(address)
    assert len(hits(page)) == 6
    words = page.get_by_label("Words of a caption")
    words.fill("Kite")
    assert hits(page) == ["a red kite over a beach"]
    assert page.get_by_role("status").inner_text() == "1 of 1 picture that fit."
    assert page.locator("#search-hits .said").all_inner_texts()[0].startswith("a red kite over a beach")
    words.fill("soup  BOWL")  # both words in one caption, in any order
    assert hits(page) == ["a bowl of soup", "a bowl of soup"]
    words.fill("cafe")
    assert hits(page) == ["a café with a green door"]
    words.fill("zebra")
    assert hits(page) == []
    assert page.get_by_role("status").inner_text() == "Nothing in this file fits."


def test_answers_are_chosen_by_what_changed(page: Any, address: str) -> None:
    page.goto(address)
    kind, direction = page.get_by_label("Answers"), page.get_by_label("Direction")
    kind.select_option("broken")
    assert hits(page) == ["a red kite over a beach"]
    kind.select_option("fixed")
    assert len(hits(page)) == 2 and "onerror" in hits(page)[0] and hits(page)[1] == "a bowl of soup"
    kind.select_option("wrong")
    direction.select_option("i2t")
    assert hits(page) == ["a café with a green door"]
    direction.select_option("t2i")
    assert hits(page) == ["two cats on a sofa", "a café with a green door"]
    page.get_by_label("Words of a caption").fill("café")  # its own answer is right in both
    assert hits(page) == []


def test_what_was_ranked_first_opens_by_keyboard(page: Any, address: str) -> None:
    page.goto(address)
    page.get_by_label("Words of a caption").fill("for two")
    card = page.locator("#search-hits > li")
    assert "rank 2 → 1 wrong → right" in " ".join(card.inner_text().split())
    card.get_by_text("captions ranked first").focus()
    page.keyboard.press("Enter")
    columns = card.locator(".head .columns > div")
    columns.nth(1).wait_for()  # a fold is filled when it opens, by an event of its own
    before, now = (column.locator("li").all_inner_texts() for column in columns.all())
    assert before[1] == "✓ right a bowl of soup" and "onerror" in before[0]
    assert now[0] == "✓ right a bowl of soup"
    card.get_by_text("pictures ranked first").nth(1).click()
    pictures = card.locator("ul .columns > div").nth(1).locator("img")
    assert pictures.first.get_attribute("alt") == "picture described as: a bowl of soup"


def test_more_is_shown_on_demand_and_read_on_from_there(page: Any, tmp_path: Path, monkeypatch: Any) -> None:
    script = (Path(write_report.__code__.co_filename).parent / "templates" / "explorer.js").read_text()
    shorter = tmp_path / "explorer.js"
    shorter.write_text(script.replace("const STEP = 6;", "const STEP = 4;"))
    monkeypatch.setattr("repair_ray.report.html.SEARCH", shorter)
    (tmp_path / "run").mkdir()
    page.goto(write_report(make_evaluated(tmp_path / "run"), evaluated_summary(), DATA).as_uri())
    assert page.get_by_role("status").inner_text() == "4 of 6 pictures that fit."
    page.get_by_role("button", name="Show more").click()
    assert len(hits(page)) == 6
    assert page.evaluate("document.activeElement.parentElement.children[4] === document.activeElement")
    assert page.get_by_role("button", name="Show more").is_hidden()


def test_a_caption_that_is_markup_stays_text(page: Any, address: str) -> None:
    page.goto(address)
    page.get_by_label("Words of a caption").fill("</script><img")
    assert len(hits(page)) == 1
    for fold in page.locator("#search-hits summary").all():
        fold.click()
    page.locator("#search-hits .columns").first.wait_for()
    assert page.title() == "looked at · repair-ray report"
    assert page.locator("img:not([src^='data:'])").count() == 0
    assert page.locator("script").count() == 2


def test_the_page_runs_and_loads_nothing_else(browser: Any, address: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text))
    page.goto(address)
    page.evaluate(
        """async () => {
          const script = document.createElement("script");
          script.textContent = "document.title = 'owned'";
          document.body.append(script);
          const image = new Image();
          const ended = new Promise((done) => { image.onload = image.onerror = done; });
          image.src = "https://evil.example/x.png";
          document.body.append(image);
          await ended;
        }"""
    )
    assert page.title() == "looked at · repair-ray report"
    assert len(refused) == 2 and all("Content Security Policy" in text for text in refused)
    context.close()


def test_sections_are_reached_from_the_top(page: Any, other_address: str) -> None:
    page.goto(other_address)
    links = page.get_by_role("navigation", name="Sections").get_by_role("link")
    assert links.count() >= 10
    for link in links.all():
        link.click()
        target = page.url.rpartition("#")[2]
        assert page.locator(f"h2#{target}").inner_text() == link.inner_text()
        assert page.locator(f"h2#{target}").is_visible()
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(h => Number(h.tagName[1]))")
    assert levels[0] == 1 and all(after - before <= 1 for before, after in itertools.pairwise(levels))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_names_and_contrast(page: Any, address: str, other_address: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    for where in (address, other_address):
        page.goto(where)
        for fold in page.locator("summary").all():
            fold.click()
        assert violations(page) == []
    shades = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 26)"}
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == shades[scheme]


@pytest.mark.parametrize("width", [320, 360, 768])
def test_a_phone_scrolls_in_one_direction(page: Any, address: str, other_address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 700})
    for where in (address, other_address):
        page.goto(where)
        for fold in page.locator("summary").all():
            fold.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_print_leaves_out_what_is_operated(page: Any, address: str) -> None:
    page.goto(address)
    page.emulate_media(media="print")
    assert page.locator("#search").is_hidden() and page.get_by_role("navigation").is_hidden()
    assert page.get_by_text("The search needs JavaScript").is_hidden()
    assert page.locator("h2#metrics").is_visible()


def test_without_scripts_all_else_is_there(browser: Any, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.get_by_text("The search needs JavaScript").is_visible()
    assert page.locator("#search").is_hidden()
    assert page.locator("h2#changes").is_visible()
    context.close()
