"""The form page as programs see it: what it shows, keeps and refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from repair_ray.config import CRITERIA, Config
from repair_ray.repair_review.edits import ANSWERS
from repair_ray.repair_review.page import EditReview
from repair_ray.review.annotations import Annotations, Annotators
from repair_ray.run import Run, RunError
from tests.export import made_run
from tests.repair_review.conftest import WORDS, item_of, say

pytest.importorskip("fastapi", reason="pip install repair_ray[review]")

from fastapi.testclient import TestClient

from repair_ray.review.form import create_form

Made = tuple[Run, Config]
EVIL = '<script>alert(1)</script> "quoted" & a <b>green</b> dot'


def client(made: Made, stack: ExitStack, *names: str, **options: Any) -> TestClient:
    run, config = made
    own = stack.enter_context(Annotators(run.path(ANSWERS), WORDS, names))
    app = create_form(EditReview(run, config, 1), own, "secret", **options)
    return TestClient(app, base_url="http://127.0.0.1:8000/secret", follow_redirects=False)


@pytest.fixture
def web(made: Made) -> Iterator[TestClient]:
    with ExitStack() as stack:
        yield client(made, stack, "anna", "ben")


def kept(run: Run, annotator: str) -> list[tuple[str, str]]:
    lines = (run.path(ANSWERS) / f"{annotator}.jsonl").read_text().splitlines()
    return [(row["item"], row["label"]) for row in map(json.loads, lines)]


def first_item(web: TestClient, annotator: str = "anna", number: int = 1) -> str:
    (found,) = re.findall(r'data-item="(\w+)"', web.get(f"/as/{annotator}/at/{number}").text)
    return found


def answer(web: TestClient, item: str, question: str = "valid", given: str = "yes", annotator: str = "anna") -> Any:
    return web.post(f"/as/{annotator}/answers", json={"item": item, "question": question, "answer": given})


def place_of(run: Run, config: Config, failure: str) -> int:
    return EditReview(run, config, 1).items.index(item_of(run, failure)) + 1


def test_an_edited_caption_before_and_after(made: Made, web: TestClient) -> None:
    text = web.get(f"/as/anna/at/{place_of(*made, 'f0')}").text
    # A2 comes first, for it is the ground truth. The false positive "a green dot" was made "a red\tdot, not green".
    assert '<span class="said" dir="auto">one dot, in red</span>' in text
    assert '<span class="said" dir="auto">a green <del>dot</del> </span>' in text
    assert '<span class="said" dir="auto">a <ins>red dot, not</ins> green </span>' in text
    assert "<dd>image → caption</dd>" in text and "<dd>1</dd>" in text and "<dd>object</dd>" in text
    assert text.count('type="radio"') == 3 * len(CRITERIA)
    # The grid: B1 with its own picture, the query's picture with the edit, and f2 around the same anchor picture.
    cells = re.findall(r'<td class="(\w+)( subject)?"', text)
    assert [name for name, _ in cells] == [
        *("positive", "negative", "negative"),
        *("negative", "positive", "masked"),
        *("negative", "masked", "positive"),
    ]  # fmt: skip
    assert [subject != "" for _, subject in cells].index(True) == 4


def test_an_edited_picture_before_and_after(made: Made, web: TestClient) -> None:
    text = web.get(f"/as/anna/at/{place_of(*made, 'f2')}").text
    assert '<span class="said" dir="auto">a red dot</span>' in text
    assert text.count("<img") == 3 + 3 and "no picture" not in text
    assert "correction, edited picture" in text and "false positive, anchor picture" in text
    assert "big green dot" in text and "<dd>caption → image</dd>" in text


def test_a_picture_that_is_gone(made: Made) -> None:
    (made[0].folder / "edit.tar").unlink()
    with ExitStack() as stack:
        text = client(made, stack, "anna").get(f"/as/anna/at/{place_of(*made, 'f2')}").text
    assert "no picture: missing file" in text and str(made[0].folder) not in text


def test_blind_unless_open(made: Made) -> None:
    run, config = made
    say(run, "cyd", {"f0": "nnnnn"})
    at = place_of(run, config, "f0")
    with ExitStack() as stack:
        blind = client(made, stack, "anna").get(f"/as/anna/at/{at}").text
    with ExitStack() as stack:
        open_ = client(made, stack, "anna", everything=True).get(f"/as/anna/at/{at}").text
    for secret in ("judge-7b", "0.75", "say red", "cyd"):
        assert secret not in blind and secret in open_, secret
    assert open_.count("cyd <strong>no</strong>") == len(CRITERIA)


def test_captions_are_never_markup(made: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(made_run.CAPTIONS, "B1", EVIL)
    (tmp_path / "evil").mkdir()
    evil = made_run.make_run(tmp_path / "evil")
    with ExitStack() as stack:
        web = client(evil, stack, "anna", everything=True)
        pages = [web.get(f"/as/anna/at/{number}").text for number in (1, 2, 3)]
    assert sum("&lt;script&gt;alert(1)" in text for text in pages) >= 2
    assert not any("<script>alert" in text or "<b>green" in text for text in pages)


def test_an_answer_is_on_the_disk_when_it_is_told(made: Made, web: TestClient) -> None:
    run, _ = made
    item = first_item(web)
    for n, criterion in enumerate(CRITERIA):
        told = answer(web, item, criterion)
        assert told.json() == {"done": int(n == 4), "total": 10}
        assert kept(run, "anna")[-1] == (f"{item}/{criterion}", "yes")
    answer(web, item, "minimal", "unsure")
    text = web.get("/as/anna/at/1").text
    assert re.findall(r'name="(\w+)" value="(\w+)" autocomplete="off" checked', text) == [
        (name, "unsure" if name == "minimal" else "yes") for name in CRITERIA
    ]
    assert "checked" not in web.get("/as/ben/at/1").text, "what one says is not shown to the other"


def test_who_comes_back_goes_on(made: Made) -> None:
    with ExitStack() as stack:
        web = client(made, stack, "anna")
        assert web.get("/as/anna").headers["location"] == "/secret/as/anna/at/1"
        for number in (1, 2):
            for criterion in CRITERIA:
                answer(web, first_item(web, number=number), criterion)
        answer(web, first_item(web, number=3))
        before = first_item(web, number=3)
    with ExitStack() as stack:
        web = client(made, stack, "anna")
        assert web.get("/as/anna").headers["location"] == "/secret/as/anna/at/3"
        assert first_item(web, number=3) == before and 'value="2"' in web.get("/as/anna/at/3").text
        for number in range(3, 11):
            for criterion in CRITERIA:
                answer(web, first_item(web, number=number), criterion)
        assert web.get("/as/anna").headers["location"] == "/secret/as/anna/at/10"
        assert "next open" not in web.get("/as/anna/at/10").text


def test_a_line_that_a_crash_has_cut_costs_itself_alone(made: Made) -> None:
    run, _ = made
    say(run, "anna", {"f0": "yyyyy"})
    path = run.path(ANSWERS) / "anna.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    with ExitStack() as stack:
        web = client(made, stack, "anna")
        own = web.get(f"/as/anna/at/{place_of(*made, 'f0')}").text
        assert own.count(" checked") == 4
        assert answer(web, item_of(run, "f0"), "contrast").json() == {"done": 1, "total": 10}
    assert json.loads(path.read_text().splitlines()[-1])["label"] == "yes"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"question": "valid", "answer": "perhaps"}, 422),
        ({"question": "true", "answer": "yes"}, 404),
        ({"question": "../../valid", "answer": "yes"}, 404),
        ({"item": "../../../etc/passwd", "question": "valid", "answer": "yes"}, 404),
        ({"item": "x" * 1000, "question": "valid", "answer": "yes"}, 422),
        ({"question": "valid", "answer": "yes", "more": 1}, 422),
        ({"question": "valid"}, 422),
    ],
)
def test_what_is_no_answer_is_not_kept(made: Made, web: TestClient, body: dict[str, Any], status: int) -> None:
    told = web.post("/as/anna/answers", json={"item": first_item(web), **body})
    assert told.status_code == status
    assert kept(made[0], "anna") == []


@pytest.mark.parametrize("path", ["/", "/as/anna", "/as/anna/at/1", "/static/form.js"])
@pytest.mark.parametrize("token", ["", "/secre", "/secretx", "/sécret", "/SECRET"])
def test_without_the_token_nothing(web: TestClient, path: str, token: str) -> None:
    told = web.get(f"http://127.0.0.1:8000{token}{path}")
    assert told.status_code == 403 and "open the address that the command has printed" in told.text
    assert told.headers["x-content-type-options"] == "nosniff"


def test_without_the_token_no_answer_is_kept(made: Made, web: TestClient) -> None:
    body = {"item": first_item(web), "question": "valid", "answer": "yes"}
    assert web.post("http://127.0.0.1:8000/as/anna/answers", json=body).status_code == 403
    assert kept(made[0], "anna") == []


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.5:8000", ""])
def test_another_host_is_refused(web: TestClient, host: str) -> None:
    assert web.get("/as/anna/at/1", headers={"Host": host}).status_code == 400


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999"])
def test_another_pages_request_is_refused(made: Made, web: TestClient, origin: str) -> None:
    body = {"item": first_item(web), "question": "valid", "answer": "yes"}
    assert web.post("/as/anna/answers", json=body, headers={"Origin": origin}).status_code == 403
    assert kept(made[0], "anna") == []


@pytest.mark.parametrize("path", ["/static/../form.py", "/static/%2e%2e/form.py", "/static/..%2fform.py", "/docs"])
def test_nothing_else_is_served(web: TestClient, path: str) -> None:
    assert web.get(path).status_code in (403, 404)


def test_the_page_is_fenced(web: TestClient) -> None:
    policy = web.get("/as/anna/at/1").headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    for script in ("form.js", "choose.js"):
        text = web.get(f"/static/{script}").text
        assert "innerHTML" not in text and "document.write" not in text


def test_places_and_names_that_are_not_there(web: TestClient) -> None:
    for path in ("/as/cyd", "/as/cyd/at/1", "/as/anna/at/0", "/as/anna/at/11", "/as/..%2fanna"):
        assert web.get(path).status_code == 404, path
    assert web.post("/as/cyd/answers", json={}).status_code in (404, 422)


def test_anybody_joins_by_a_name_that_is_no_path(made: Made) -> None:
    run, _ = made
    say(run, "ben", {"f0": "yyyyy"})
    with ExitStack() as stack:
        web = client(made, stack)
        assert "/as/ben" in web.get("/").text and 'id="join"' in web.get("/").text
        answer(web, first_item(web, "dora"), annotator="dora")
        assert {"/as/ben", "/as/dora"} <= set(re.findall(r"/as/\w+", web.get("/").text))
        for name in ("..%5c..%5cx", ".hidden", "-x", "x" * 65, "%C3%A4"):
            told = web.get(f"/as/{name}")
            assert told.status_code == 409 and "take letters, digits" in told.text, name
        # Elsewhere somebody answers by this name.
        with Annotations(run.path(ANSWERS), "emma", WORDS):
            told = web.get("/as/emma")
        assert told.status_code == 409 and "somebody labels as emma already" in told.text
    outside = {path.relative_to(run.folder).parts[0] for path in run.folder.rglob("*.jsonl")}
    assert outside == {"review"}


def test_answers_of_others_that_cannot_be_read(made: Made) -> None:
    run, _ = made
    run.path(ANSWERS).mkdir(parents=True)
    (run.path(ANSWERS) / "cyd.jsonl").write_text('{"item": "x/valid", "label": "perhaps"}\n')
    with ExitStack() as stack:
        web = client(made, stack, everything=True)
        for path in ("/", "/as/anna/at/1", "/as/cyd"):
            told = web.get(path)
            assert told.status_code == 409 and "cyd.jsonl, line 1: unknown label 'perhaps'" in told.json()["detail"]


def test_two_servers_for_one_annotator(made: Made) -> None:
    with ExitStack() as stack:
        client(made, stack, "anna")
        with pytest.raises(RunError, match="somebody labels as anna already"):
            client(made, stack, "ben", "anna")
        # Ben's was let go of again.
        client(made, stack, "ben")
