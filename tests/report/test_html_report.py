from __future__ import annotations

import base64
import io
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from repair_ray import tables
from repair_ray.config import DataConfig
from repair_ray.data.shards import ShardWriter
from repair_ray.data.text import text_key
from repair_ray.report.html import write_report
from repair_ray.run import Recipe, Run, RunError

DATA = DataConfig(path="unused")
ATTACK = "a red circle <script>alert(1)</script> \"quoted\" & 'more' https://evil.example/x.png"
COLOURS = {"v": (200, 0, 0), "q": (0, 0, 200), "w": (0, 160, 0), "e": (90, 90, 90)}
TEXTS = {"v": ATTACK, "q": "a blue square", "w": "a green star"}
MODEL = {
    "model": "judge-<8b>",
    "questions": 3,
    "calls": 4,
    "input_tokens": 12_345,
    "output_tokens": 67,
    "seconds": 6.0,
    "cost": 1.5,
}
VOID = {"meta", "link", "img", "br", "input"}


def png(colour: tuple[int, int, int]) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), colour).save(buffer, "png")
    return buffer.getvalue()


def direction(r1: float) -> dict[str, Any]:
    return {"r@1": r1, "r@5": r1 + 10, "r@10": r1 + 20, "mrr": r1 + 5, "r@1_ci": [r1 - 2, r1 + 2], "n": 1000}


def metrics(i2t: float, t2i: float) -> dict[str, Any]:
    return {"i2t": direction(i2t), "t2i": direction(t2i)}


def summary() -> dict[str, Any]:
    return {
        "name": "small",
        "strategy": "repair",
        "seed": 7,
        "versions": {"ray": "2.60.0"},
        "config": {"mining": {"split": "train", "k": 5}, "data": {"path": "<b>here</b>"}},
        "base": {"metrics": metrics(53.1, 52.4)},
        "rounds": [
            {
                "failures": {"i2t": 11, "t2i": 22},
                "verdicts": {"valid": 30, "benign_match": 3},
                "error_types": {"i2t": {"object": 9, "attribute": 2}, "t2i": {"count": 4}},
                "edits": {"accepted": {"i2t": 1, "t2i": 1}, "rejected": {"moved away <i>": 6}},
                "truth": {"audit_precision": 96.4, "edit_validity": {"i2t": 93.2, "t2i": 95.0}},
                "metrics": metrics(61.3, 60.2),
            }
        ],
        "language": {"products": {"round-1/edits_answers": MODEL}, "calls_per_pair": 2.25},
        "controls": {"vanilla_equal_compute": {"metrics": metrics(57.0, 60.9), "items": 1000}},
        "stages": [
            {
                "name": "data/images",
                "seconds": 3.0,
                "rows": 4,
                "rows_per_second": 1.3,
                "statuses": {"ok": 3, "error": 1},
                "reasons": {"truncated": 1},
            }
        ],
        "training": {
            "round-1/training": {
                "items_encoded": 990,
                "steps": 20,
                "best_step": 10,
                "history": [
                    {"step": 10, "infonce": 2.5, "local_grid": 1.0, "validation": 50.0},
                    {"step": 20, "infonce": 2.0, "local_grid": math.nan, "validation": 51.0},
                ],
            }
        },
        "evaluation": {"split": "test", "images": 1000, "captions": 5000, "ties": "pessimistic"},
    }


def commit(run: Run, product: str, kind: tables.Table, rows: list[dict[str, Any]], *parents: str) -> None:
    recipe = Recipe({}, parents)
    assert not run.ready(product, recipe)
    run.commit(product, recipe, kind, tables.to_table([{"status": "ok", **row} for row in rows], kind.schema), 1.0)


def make_run(folder: Path, *, t2i_kind: str = "edited", drop_shard: bool = False) -> Run:
    """An anchor pair (v, cv) that the image q and the caption cw wrongly retrieved; both were repaired."""
    run = Run(folder)
    with ShardWriter(str(run.path("data/shards")), "source", 2**20, str(run.folder)) as shards:
        members = {key: shards.add(png(colour), key).ref() for key, colour in COLOURS.items()}
    refs = {k: {"uri": m.uri, "offset": m.offset, "length": m.length} for k, m in members.items()}
    images = [{"image_id": key, "split": "train", "group_id": f"g{key}", **refs[key]} for key in TEXTS]
    commit(run, "data/images", tables.IMAGES, images)
    captions = [
        {
            **{"caption_id": f"c{key}", "image_id": key, "split": "train", "group_id": f"g{key}"},
            **{"position": 0, "text": text, "text_key": text_key(text)},
        }
        for key, text in TEXTS.items()
    ]
    commit(run, "data/captions", tables.CAPTIONS, captions, "data/images")
    i2t = {"failure_id": "f1", "direction": "i2t", "query_id": "q", "candidate_id": "cv", "ground_truth_id": "cq"}
    t2i = {"failure_id": "f2", "direction": "t2i", "query_id": "cw", "candidate_id": "v", "ground_truth_id": "w"}
    scores = {"score": 0.625, "ground_truth_score": 0.5}
    failures = [{**i2t, "rank": 1, **scores}, {**t2i, "rank": 3, **scores}]
    commit(run, "round-1/failures", tables.FAILURES, failures, "data/captions")
    verdicts = [{"failure_id": f, "direction": d, "judgement": "valid"} for f, d in (("f1", "i2t"), ("f2", "t2i"))]
    commit(run, "round-1/verdicts", tables.VERDICTS, verdicts, "round-1/failures")
    edited = {"kind": "edited", "align_before": 0.25, "align": 0.75, "scaffold": 0.875}
    text_edit = {**i2t, **edited, "text": "a blue square <script>", "instruction": "change the red circle to a square"}
    picture_edit = {**t2i, **edited, "kind": t2i_kind, "instruction": "add a green star"}
    picture_edit |= refs["e"] if t2i_kind == "edited" else {"instruction": None, "align": None, "scaffold": None}
    refused = {**i2t, "failure_id": "f3", "kind": "edited", "status": "rejected", "reason": "moved away <i>"}
    commit(run, "round-1/edits", tables.EDITS, [text_edit, picture_edit, refused], "round-1/verdicts")
    if drop_shard:
        for shard in run.path("data/shards").glob("*.tar"):
            shard.unlink()
    return run


class Page(HTMLParser):
    """Checks that tags nest, and gathers ids, links, pictures, scripts and text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1:] == [tag], f"</{tag}> closes nothing"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def report(run: Run, values: dict[str, Any]) -> tuple[str, Page]:
    path = write_report(run, values, DATA)
    assert path == run.folder / "report.html"
    html = path.read_text(encoding="utf-8")
    return html, Page(html)


def test_figures_are_there(tmp_path: Path) -> None:
    _, page = report(make_run(tmp_path), summary())
    for words in (
        "53.1 → 61.3 %",
        "+8.2 points against the base",
        "+4.3 against vanilla, equal compute (0.99 × its items encoded) ; intervals apart",
        "−0.7 against vanilla, equal compute (0.99 × its items encoded) ; intervals overlap",
        "of the test split: 1,000 images, 5,000 captions. Ties: pessimistic.",
        "Failures: image → caption 11, caption → image 22.",
        "rank 1, cosine 0.625 against 0.500; audit: valid",
        "benign match 3",
        "error types, caption → image",
        "Accepted edits: image → caption 1, caption → image 1.",
        "moved away <i> 6 100.0 %",
        "change the red circle to a square",
        "cosine to the query 0.250 → 0.750, to its source 0.875",
        "wrongly retrieved at rank 3",
        "audit precision 96.4 %",
        "edit validity, image → caption 93.2 %",
        "data/images – 3.0 s 4 1.3 3 ok, 1 error",
        "data/images error truncated 1",
        "2.25 calls for each accepted edit",
        "round-1/edits judge-<8b> 3 4 12,345 67 1.50 1.50",
        "20 steps, best at 10, 990 items encoded",
        "ray 2.60.0",
        "seed 7",
        "The mined split has 3 usable images.",
    ):
        assert words in page.text, words


def test_an_approximate_search_says_what_it_finds(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert "approximate" not in report(run, summary())[1].text
    _, page = report(run, {**summary(), "approximate_search": {"round-1/failures": {"t2i": 0.9713}}})
    assert "which finds of the exact neighbours: caption → image 97.1 %." in page.text


@pytest.mark.parametrize(
    ("placement", "words"),
    [
        ("local", "Each grid is one training example"),
        ("dispersed", "train as pairs of the global batch"),
        ("both", "Its pairs train in the global batch as well."),
    ],
)
def test_grids_are_explained_as_they_are_trained_on(tmp_path: Path, placement: str, words: str) -> None:
    made = summary()
    made["config"]["objective"] = {"placement": placement}
    _, page = report(make_run(tmp_path), made)
    assert words in page.text


def test_grid_is_three_by_three_with_the_right_pictures(tmp_path: Path) -> None:
    html, page = report(make_run(tmp_path), summary())
    cells = [
        attrs["class"] for attrs in page.of("td") if attrs.get("class") in ("positive", "negative", "masked", "absent")
    ]
    assert cells == ["positive", *["negative"] * 3, "positive", *["negative"] * 3, "positive"]
    assert "a <ins>blue square &lt;script&gt;</ins>" in html
    grid = html[html.index('class="grid"') :]
    shown = [Image.open(io.BytesIO(base64.b64decode(found))) for found in re.findall(r"base64,([^\"]+)", grid)]
    assert [image.convert("RGB").getpixel((0, 0)) for image in shown] == [COLOURS[key] for key in "vqe"]
    assert [attrs["alt"] for attrs in page.of("img")][-3:] == [
        f"anchor picture, described as: {ATTACK}",
        "query picture, described as: a blue square",
        "edited picture, described as: a green star",
    ]


def test_outside_text_is_escaped_and_nothing_is_requested(tmp_path: Path) -> None:
    html, page = report(make_run(tmp_path), summary())
    assert ATTACK in " ".join(page.words)
    assert "<b>here</b>" in page.text
    assert not page.of("script")
    assert "<script" not in html
    for tag, attrs in page.tags:
        assert not any(name.startswith("on") for name in attrs), (tag, attrs)
        for name in ("src", "href", "data", "action", "srcset"):
            link = attrs.get(name)
            assert link is None or link.startswith(("data:", "#")), (tag, name, link)
    assert "url(" not in html
    assert "@import" not in html
    policy = next(attrs["content"] for attrs in page.of("meta") if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert "default-src 'none'" in policy


def test_page_is_navigable(tmp_path: Path) -> None:
    _, page = report(make_run(tmp_path), summary())
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    links = [str(attrs["href"])[1:] for attrs in page.of("a")]
    assert set(links) <= set(ids)
    assert "metrics" in links
    assert {attrs["aria-labelledby"] for attrs in page.of("section")} == set(links) - {"main"}
    assert all(attrs.get("alt") for attrs in page.of("img"))
    assert [len(page.of(tag)) for tag in ("main", "header", "footer", "nav", "h1")] == [1] * 5
    assert page.of("html")[0]["lang"] == "en"


@pytest.mark.parametrize(
    "values",
    [
        {"name": "bare"},
        {"name": "no round", "rounds": [], "base": {"metrics": metrics(1, 2)}, "controls": {}},
        {"name": "vanilla", "strategy": "vanilla", "rounds": [{"metrics": metrics(1, 2), "truth": {}}]},
        {"name": "one way", "rounds": [{"metrics": {"t2i": direction(5)}, "edits": {"accepted": {}, "rejected": {}}}]},
    ],
)
def test_absent_parts_are_left_out(tmp_path: Path, values: dict[str, Any]) -> None:
    _, page = report(Run(tmp_path), values)
    assert values["name"] in page.text
    ids = {attrs["id"] for _, attrs in page.tags if "id" in attrs}
    assert not ids & {"failures", "edits", "truth", "connectivity", "training", "stages", "bad-rows", "run"}
    assert ("metrics" in ids) == (len(values) > 1)


def test_paired_counterpart_is_shown_as_such(tmp_path: Path) -> None:
    html, page = report(make_run(tmp_path, t2i_kind="paired"), summary())
    assert "paired counterpart, no edit cosine to the query 0.250" in page.text
    assert [attrs["alt"] for attrs in page.of("img")][-1] == "paired picture, described as: a green star"
    last = re.findall(r"base64,([^\"]+)", html)[-1]
    assert Image.open(io.BytesIO(base64.b64decode(last))).convert("RGB").getpixel((0, 0)) == COLOURS["w"]


def test_lost_pictures_are_named_and_not_fatal(tmp_path: Path) -> None:
    _, page = report(make_run(tmp_path, drop_shard=True), summary())
    assert not page.of("img")
    assert "(not readable: missing file)" in page.text


def test_a_report_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    with pytest.raises(RunError, match=r"cannot write .*report\.html"):
        write_report(Run(tmp_path), {"name": "x"}, DATA)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_connectivity_counts_two_negatives_and_one_positive_a_repair(tmp_path: Path) -> None:
    _, page = report(make_run(tmp_path), summary())
    # Both repairs hang on image v: 4 hard negatives. Their queries are image q and image w's caption: 1 each.
    assert "Anchors with any: 1; median 4.0, largest 4." in page.text
    assert "Anchors with any: 2; median 1.0, largest 1." in page.text
    assert "4–7 1 100.0 %" in page.text
    # q was taken for v's caption, w's caption for v: one group of three.
    assert "Repairs link 3 anchors into 1 group; the largest has 3." in page.text
