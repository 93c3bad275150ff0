"""The review page: two annotators, reloads, and what it must not do."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from repair_ray.data.images import ImageProblem
from repair_ray.evaluation.votes import between_verifiers
from repair_ray.review.annotations import Annotations, read_all
from repair_ray.review.task import Key, Shown

pytest.importorskip("fastapi", reason="pip install repair_ray[review]")

from fastapi.testclient import TestClient

from repair_ray.review.app import create_app

ITEMS = ("id1", "id2", "id3", "id4")
EVIL = '<script>alert(1)</script> "quoted" & ⟨é⟩'


class Colours:
    """Four items, each a text beside a picture of one colour; the third cannot be read."""

    question = "Is it so?"
    keys = (Key("y", "yes", "yes"), Key("n", "no", "no"), Key("u", "unsure", "unsure"))
    items = ITEMS

    def shown(self, item: str) -> Shown:
        return Shown(EVIL if item == "id2" else f"text of {item}")

    def picture(self, item: str, number: int) -> Image.Image:
        if item == "id3":
            raise ImageProblem("missing_file", "/secret/place.jpg")
        return Image.new("RGB", (4, 3), (10 * ITEMS.index(item), 0, 0))


@pytest.fixture
def page(tmp_path: Path) -> Iterator[TestClient]:
    with ExitStack() as stack:
        yield client(tmp_path, stack)


def client(folder: Path, stack: ExitStack) -> TestClient:
    own = {name: stack.enter_context(Annotations(folder, name, ("yes", "no", "unsure"))) for name in ("anna", "ben")}
    return TestClient(create_app(Colours(), own, "token"), base_url="http://127.0.0.1:8000/token")


def say(page: TestClient, annotator: str, item: str, label: str) -> dict[str, Any]:
    answer = page.post(f"/as/{annotator}/labels", json={"item": item, "label": label})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def at(page: TestClient, annotator: str, place: int | None = None) -> dict[str, Any]:
    found: dict[str, Any] = page.get(f"/as/{annotator}/items", params={} if place is None else {"at": place}).json()
    return found


def test_an_annotator_goes_forward_and_back_and_comes_again(tmp_path: Path) -> None:
    with ExitStack() as stack:
        page = client(tmp_path, stack)
        first = at(page, "anna")
        assert first == {
            "at": 0, "item": "id1", "text": "text of id1", "pictures": 1, "label": None, "done": 0, "total": 4,
        }  # fmt: skip
        assert say(page, "anna", "id1", "yes") == {"done": 1, "total": 4}
        say(page, "anna", "id2", "no")
        assert at(page, "anna")["item"] == "id3"
        back = at(page, "anna", 1)
        assert (back["item"], back["label"], back["text"]) == ("id2", "no", EVIL)
        say(page, "anna", "id2", "unsure")
        assert at(page, "anna", 1)["label"] == "unsure"
        assert at(page, "ben") == {**first, "done": 0}, "what one says is not shown to the other"
    # The server was stopped; who comes back goes on where they were.
    with ExitStack() as stack:
        page = client(tmp_path, stack)
        again = at(page, "anna")
        assert (again["item"], again["done"]) == ("id3", 2)
        say(page, "anna", "id3", "no")
        say(page, "anna", "id4", "no")
        last = at(page, "anna")
        assert (last["item"], last["label"], last["done"]) == ("id4", "no", 4)


def test_two_annotators_and_their_kappa(page: TestClient, tmp_path: Path) -> None:
    for item, (anna, ben) in zip(ITEMS, [("yes", "yes"), ("yes", "no"), ("no", "no"), ("no", "no")], strict=True):
        say(page, "anna", item, anna)
        say(page, "ben", item, ben)
    (found,) = between_verifiers(read_all(tmp_path, ("yes", "no", "unsure")))
    # Equal 3 of 4; by chance (2*1 + 2*3) of 16.
    assert found["kappa"] == pytest.approx((0.75 - 0.5) / (1 - 0.5))


def test_pictures_go_out_by_id_as_pixels(page: TestClient) -> None:
    answer = page.get("/as/anna/pictures/id2/0")
    assert answer.headers["content-type"] == "image/png"
    assert Image.open(io.BytesIO(answer.content)).getpixel((0, 0)) == (10, 0, 0)
    broken = page.get("/as/anna/pictures/id3/0")
    assert broken.status_code == 404 and "missing_file" in broken.text and "secret" not in broken.text
    for path in ("id2/1", "id2/-1", "nobody/0", "..%2F..%2Fetc%2Fpasswd/0"):
        assert page.get(f"/as/anna/pictures/{path}").status_code in (404, 422)


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/docs", "/openapi.json"]
)
def test_nothing_else_is_served(page: TestClient, path: str) -> None:
    assert page.get(path).status_code == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"item": "id1", "label": "maybe"}, 422),
        ({"item": "id9", "label": "yes"}, 404),
        ({"item": "id1"}, 422),
        ({"item": "id1", "label": "yes", "more": 1}, 422),
        ({"item": "x" * 1000, "label": "yes"}, 422),
    ],
)
def test_what_is_no_label_is_not_kept(page: TestClient, tmp_path: Path, body: dict[str, Any], status: int) -> None:
    assert page.post("/as/anna/labels", json=body).status_code == status
    assert read_all(tmp_path, ("yes", "no", "unsure")) == {}


def test_unknown_names_and_places(page: TestClient) -> None:
    for path in ("/as/cyd", "/as/cyd/items", "/as/anna/items?at=4", "/as/anna/items?at=-1"):
        assert page.get(path).status_code == 404, path
    assert page.post("/as/cyd/labels", json={"item": "id1", "label": "yes"}).status_code == 404


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.5:8000", ""])
def test_another_host_is_refused(page: TestClient, host: str) -> None:
    """Else a page elsewhere whose name is made to point here could read everything."""
    assert page.get("/as/anna/items", headers={"Host": host}).status_code == 400


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999"])
def test_another_pages_request_is_refused(page: TestClient, tmp_path: Path, origin: str) -> None:
    body = {"item": "id1", "label": "yes"}
    assert page.post("/as/anna/labels", json=body, headers={"Origin": origin}).status_code == 403
    assert read_all(tmp_path, ("yes", "no", "unsure")) == {}
    own = page.post("/as/anna/labels", json=body, headers={"Origin": "http://127.0.0.1:8000"})
    assert own.status_code == 200


def test_the_page_holds_no_text_of_an_item_and_is_fenced(page: TestClient) -> None:
    answer = page.get("/as/anna")
    assert "alert(1)" not in answer.text and "text of" not in answer.text
    assert 'data-key="u"' in answer.text and "Is it so?" in answer.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert page.get("/static/review.js").headers["x-content-type-options"] == "nosniff"
    # Texts are set as text, never as markup.
    script = page.get("/static/review.js").text
    assert "innerHTML" not in script and "document.write" not in script
    assert "/as/ben" in page.get("/").text
