"""What the report tells of single queries: counts, drawn examples, and the data of the search, by hand."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from repair_ray.report import explorer
from repair_ray.report.answers import BASE, read_answers, repaired_metrics, state
from repair_ray.report.changes import change_tables, changed_examples
from repair_ray.report.html import write_report
from repair_ray.report.pictures import DataRows, Pictures
from repair_ray.run import Run
from tests.report.evaluated_run import HOSTILE, TEXTS, evaluated_summary, make_evaluated
from tests.report.test_html_report import DATA, Page, report


def read_both(run: Run) -> tuple[Any, Any]:
    before, after = read_answers(run, BASE), read_answers(run, "round-1/metrics")
    assert before is not None and after is not None
    return before, after


def made_search(run: Run, **limits: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the search's maker returned, and its JSON as a browser reads it."""
    made = explorer.search_data(*read_both(run), DataRows(run), Pictures(run, DATA), **limits)
    return made, json.loads(made["json"])


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [((3, 1), "fixed"), ((1, 2), "broken"), ((1, 1), "right"), ((4, 2), "wrong"), ((0, 1), None), ((1, None), None)],
)
def test_states(ranks: tuple[int, int | None], expected: str | None) -> None:
    assert state(*ranks) == expected


def test_counts_are_shown_with_their_chance() -> None:
    i2t, t2i = change_tables(evaluated_summary())
    assert (i2t["direction"], t2i["direction"]) == ("image → caption", "caption → image")
    assert [line["label"] for line in i2t["lines"]] == ["base", "vanilla, equal compute"]
    assert change_tables({}) == []


def test_the_page_names_counts_and_p(tmp_path: Path) -> None:
    _, page = report(make_evaluated(tmp_path), evaluated_summary())
    assert "base 2 1 2 1 1.000" in page.text
    assert "vanilla, equal compute 9 1 8 1 0.021" in page.text
    assert "vanilla, equal compute 99 1 8 1 < 0.001" in page.text


def test_examples_are_those_that_changed(tmp_path: Path) -> None:
    run = make_evaluated(tmp_path)
    i2t, t2i = changed_examples(*read_both(run), DataRows(run), Pictures(run, DATA), seed=1)
    assert (i2t["direction"], t2i["direction"]) == ("i2t", "t2i")
    # Images 0 and 4 came right, image 1 went wrong; captions p0-0 and p4-1 came right, p1-1 went wrong.
    assert {example["ranks"] for example in i2t["fixed"]} == {(3, 1), (2, 1)}
    (broken,) = i2t["broken"]
    assert broken["ranks"] == (1, 2)
    assert broken["query"]["picture"]["alt"] == "query picture, described as: a red kite over a beach"
    assert broken["before"] == {"text": "a red kite over a beach"}
    assert broken["after"] == {"text": HOSTILE}  # p0's first caption, which the made ranks put first
    assert broken["right"] == {"text": "a red kite over a beach"}
    assert broken["scores"] == pytest.approx((0.9, 0.9))
    fixed = next(example for example in t2i["fixed"] if example["ranks"] == (3, 1))
    assert fixed["query"] == {"text": "soup for two"}
    assert fixed["before"]["picture"]["alt"] == f"before picture, described as: {HOSTILE}"
    assert fixed["right"]["picture"]["alt"] == "right picture, described as: a bowl of soup"


def test_which_examples_are_shown_hangs_on_the_seed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repair_ray.report.changes.EXAMPLES", 1)
    run = make_evaluated(tmp_path)
    rows, pictures = DataRows(run), Pictures(run, DATA)
    drawn = [
        changed_examples(*read_both(run), rows, pictures, seed)[0]["fixed"][0]["ranks"] for seed in (*range(12), 0)
    ]
    assert drawn[0] == drawn[-1]
    assert set(drawn) == {(3, 1), (2, 1)}


def test_ranks_without_items_give_counts_and_a_search_alone(tmp_path: Path) -> None:
    run = make_evaluated(tmp_path, items_kept=False)
    assert changed_examples(*read_both(run), DataRows(run), Pictures(run, DATA), seed=0) == []
    _, found = made_search(run)
    assert found["images"][0]["top"] == [[], []]
    assert sorted(image["rank"] for image in found["images"]) == [[1, 1], [1, 1], [1, 2], [2, 1], [3, 1], [4, 2]]


def test_tables_of_an_earlier_version_are_read(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    run = make_evaluated(tmp_path)
    (part,) = run.parts(BASE)
    pq.write_table(pq.read_table(part, columns=["query_id", "direction", "rank", "status", "reason"]), part)
    found = read_answers(run, BASE)
    assert found is not None
    assert found["i2t"]["p0"].items() >= {"rank": 3, "top": [], "ground_truth_id": None}.items()
    assert read_answers(run, "nowhere") is None
    assert read_answers(run, "data/images") is None


@pytest.mark.parametrize(
    ("summary", "expected"),
    [
        ({"rounds": [{}, {}]}, "round-2/metrics"),  # of an earlier version
        ({"rounds": [{}, {}], "result": {"round": 1}}, "round-1/metrics"),
        ({"rounds": [{}], "result": {"round": 0}}, None),
        ({}, None),
    ],
)
def test_the_repaired_retriever_is_that_of_the_result(summary: dict[str, Any], expected: str | None) -> None:
    assert repaired_metrics(summary) == expected


class TestSearch:
    def test_data_by_hand(self, tmp_path: Path) -> None:
        made, found = made_search(make_evaluated(tmp_path))
        assert (made["images"], made["pictures"], made["of"], made["cut"]) == (6, 6, 6, None)
        # Changed answers first: p0, p1, p4; then p2, p3, p5.
        texts = [[found["captions"][place]["text"] for place in image["captions"]] for image in found["images"]]
        assert texts == [list(TEXTS[image]) for image in ("p0", "p1", "p4", "p2", "p3", "p5")]
        assert [image["rank"] for image in found["images"]] == [[3, 1], [1, 2], [2, 1], [1, 1], [4, 2], [1, 1]]
        assert found["captions"][0] == {"text": HOSTILE, "image": 0, "rank": [2, 1], "top": [[1, 0, 3], [0, 1, 3]]}
        # p4's picture found before: p0's first caption (place 0), its own first (4), p0's second (1).
        assert found["images"][2]["top"] == [[0, 4, 1], [4, 0, 1]]
        assert all(source.startswith("data:image/png;base64,") for source in found["pictures"])

    def test_no_caption_ends_the_element_that_holds_it(self, tmp_path: Path) -> None:
        made, found = made_search(make_evaluated(tmp_path))
        assert not set("<>&'") & set(made["json"])
        assert HOSTILE in [caption["text"] for caption in found["captions"]]

    def test_pictures_are_cut_at_their_limit(self, tmp_path: Path) -> None:
        run = make_evaluated(tmp_path)
        _, whole = made_search(run)
        two = len(whole["pictures"][0]) + len(whole["pictures"][1])
        made, found = made_search(run, picture_bytes=two)
        assert found["pictures"] == [*whole["pictures"][:2], None, None, None, None]
        assert (made["images"], made["pictures"]) == (6, 2)
        assert made["cut"] == (
            "To keep this file small, the first 2 of them are shown, the others are named by their captions."
        )

    def test_texts_are_cut_at_their_limit(self, tmp_path: Path) -> None:
        run = make_evaluated(tmp_path)
        made, found = made_search(run, text_bytes=1200)
        assert (made["images"], len(found["images"]), len(found["captions"])) == (2, 2, 4)
        assert "2 of the 6 pictures of the split are in this file, changed answers first" in made["cut"]
        without = {**found, "pictures": []}
        assert len(explorer.htmlsafe_json_dumps(without, ensure_ascii=False)) <= 1200
        # What was found and is not in the file has no place: p2's first caption and the others.
        assert found["captions"][3]["top"] == [[1, 0, -1], [0, -1, 1]]

    def test_a_set_of_many_long_captions_stays_below_the_limit(self, tmp_path: Path) -> None:
        run = make_evaluated(tmp_path)
        before, after = read_both(run)
        rows = DataRows(run)
        hostile = [{"caption_id": f"x{n}", "image_id": "p0", "position": n, "text": "<é>" * 50} for n in range(300)]
        captions = {f"i{n}": hostile for n in range(300)}
        kept = explorer._that_fit(list(captions), captions, 10 * 2**20)
        # 300 captions of 50 times 6 + 2 + 6 bytes.
        assert len(kept) == 10 * 2**20 // (160 + 300 * (160 + 2 + 50 * 14))
        assert explorer.search_data(before, after, rows, Pictures(run, DATA), text_bytes=0)["images"] == 0

    def test_lost_pictures_are_not_fatal(self, tmp_path: Path) -> None:
        made, found = made_search(make_evaluated(tmp_path, drop_shards=True))
        assert found["pictures"] == [None] * 6
        assert made["pictures"] == 0


def test_the_page_allows_its_own_script_alone(tmp_path: Path) -> None:
    html = write_report(make_evaluated(tmp_path), evaluated_summary(), DATA).read_text(encoding="utf-8")
    page = Page(html)
    assert [script.get("type") for script in page.of("script")] == ["application/json", None]
    content = html.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)
    assert f"script-src 'sha256-{digest}';" in policy
    assert "unsafe-eval" not in policy and "script-src 'unsafe" not in policy
    assert "default-src 'none'" in policy
    assert not page.of("form")
    for tag, attrs in page.tags:
        assert not any(name.startswith("on") for name in attrs), (tag, attrs)
    assert "innerHTML" not in content and "eval(" not in content and "fetch(" not in content


def test_a_page_without_answers_has_no_script(tmp_path: Path) -> None:
    html, page = report(Run(tmp_path), {"name": "bare"})
    assert not page.of("script") and "script-src" not in html
