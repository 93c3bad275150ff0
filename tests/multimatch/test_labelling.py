"""From experts' features to a benchmark's files, on a run where everything can be worked out by hand."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from repair_ray.config import Config
from repair_ray.data.records import DataError
from repair_ray.evaluation.benchmark_files import read_benchmark
from repair_ray.multimatch.build import label_again
from repair_ray.multimatch.candidates import make_pairs
from repair_ray.multimatch.experts import Expert
from repair_ray.multimatch.matches import make_benchmark, make_matches
from repair_ray.multimatch.people import PairReview, settle_people, sheet_of, take_labels, write_sheet
from repair_ray.multimatch.products import ANNOTATIONS, MATCHES, PAIRS
from repair_ray.multimatch.stats import stats_of, write_stats
from repair_ray.multimatch.verify import verify_by_groups
from repair_ray.report.multimatch import stats_tables
from repair_ray.review.annotations import Annotations
from repair_ray.run import Run, RunError
from tests.multimatch.conftest import image_id, make, query_id

EXPERTS = [Expert("one", None, None), Expert("two", None, None, teacher=True)]  # type: ignore[arg-type]
WORDS = ("yes", "no", "unsure")


def pairs_of(run: Run) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["query_id"], row["image_id"]): row for row in run.read(PAIRS).to_pylist()}


def proposed(run: Run, text: str) -> dict[int, dict[str, int]]:
    """Of each picture that is proposed for a query, the experts with their ranks."""
    return {
        int(image.removeprefix("image-")): dict(zip(row["experts"], row["ranks"], strict=True))
        for (query, image), row in pairs_of(run).items()
        if query == query_id(text) and row["proposed"]
    }


@pytest.fixture
def paired(made: tuple[Run, Config]) -> tuple[Run, Config]:
    make_pairs(*made, EXPERTS)
    return made


def test_candidates_by_hand(paired: tuple[Run, Config]) -> None:
    run, _ = paired
    # One: the query at 0 degrees is nearest to pictures 0 (0) and 1 (5). Two: at 14 to 1 (10), then 2 (20).
    assert proposed(run, "a cat") == {0: {"one": 1}, 1: {"one": 2, "two": 1}, 2: {"two": 2}}
    # Held out: the teacher proposes nothing. At 42 degrees 2 (40), then 4 (60).
    assert proposed(run, "a dog") == {2: {"one": 1}, 4: {"one": 2}}
    # One: at 118 pictures 5 (120) and 3 (80); two: at 108 pictures 4 (110) and 3 (100).
    assert proposed(run, "a bird") == {5: {"one": 1}, 3: {"one": 2, "two": 2}, 4: {"two": 1}}
    # 18 pairs, 8 of them proposed; more were to be sampled than there are outside.
    assert len(pairs_of(run)) == 18
    facts = (run.manifest(PAIRS) or {})["candidates"]
    assert facts == {"queries": 3, "gallery": 6, "proposed": 8, "outside": 10, "sampled": 10}


def test_a_smaller_sample_is_the_same_for_a_seed(tmp_path: Path) -> None:
    drawn = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        (tmp_path / name).mkdir()
        run, config = make(tmp_path / name, candidates={"top": 2, "outside": 1})
        make_pairs(run, config.model_copy(update={"seed": seed}), EXPERTS)
        drawn.append({key for key, row in pairs_of(run).items() if not row["proposed"]})
    assert [len(own) for own in drawn] == [3, 3, 3] and drawn[0] == drawn[1] != drawn[2]


def labelled(run: Run, config: Config) -> None:
    people = settle_people(run)
    make_matches(run, config, [verify_by_groups(run, config)], sorted(people.values()))
    make_benchmark(run, config)


def test_labels_completeness_and_files_by_hand(paired: tuple[Run, Config]) -> None:
    run, config = paired
    labelled(run, config)
    # True: the cat's 0, 1, 3, the dog's 2, the bird's 4. All are proposed but the cat's 3, which the sample finds.
    found = (run.manifest(MATCHES) or {})["completeness"]
    assert found["not_labelled"] == 0
    whole = found["all"]
    assert (whole["inside_matches"], whole["sampled_matches"], whole["missed"]) == (4, 1, 1.0)
    assert (whole["recall"], whole["interval"], whole["labelled_recall"]) == (80.0, [80.0, 80.0], 100.0)
    assert found["held_out"]["recall"] == 100.0 and found["held_out"]["outside_pairs"] == 4
    assert found["with_teachers"]["recall"] == 75.0
    benchmark = read_benchmark(run.path("multimatch/benchmark"))
    right = {text: set(benchmark.matches[query_id(text)]) for text in ("a cat", "a dog", "a bird")}
    assert right == {
        "a cat": {image_id(0), image_id(1), image_id(3)},
        "a dog": {image_id(2)},
        "a bird": {image_id(4)},
    }
    assert [query.text for query in benchmark.queries if query.held_out] == ["a dog"]
    assert benchmark.facts["queries_without_match"] == 0 and not any(benchmark.ignored.values())


def test_stats_by_hand(paired: tuple[Run, Config]) -> None:
    run, config = paired
    labelled(run, config)
    facts, path = write_stats(run, config)
    assert json.loads(path.read_text()) == json.loads(json.dumps(facts))
    assert facts["matches"]["queries_by_matches"] == {
        "0": 0, "1": 2, "2-5": 1, "6-10": 0, "11-20": 0, "21-50": 0, "51+": 0,
    }  # fmt: skip
    assert (facts["matches"]["n"], facts["matches"]["max"], facts["matches"]["quartiles"]) == (5, 3, [1.0, 1.0, 2.0])
    one, two = facts["experts"]
    # One: cat 0 (alone), 1; dog 2 (alone), 4; bird 5, 3. Two: cat 1, 2; bird 4 (alone), 3.
    assert one == {
        "name": "one", "teacher": False, "candidates": 6, "matches": 3, "unique_candidates": 4, "unique_matches": 2,
    }  # fmt: skip
    assert two == {
        "name": "two", "teacher": True, "candidates": 4, "matches": 2, "unique_candidates": 2, "unique_matches": 1,
    }  # fmt: skip
    assert facts["labels"] == {"yes": 5, "no": 13} and facts["verifiers"] == {"groups": 18}
    assert len(stats_tables(facts)) == 4


def test_a_query_without_a_match_stays(tmp_path: Path) -> None:
    run, config = make(tmp_path, verify={"by": ["people"]})
    make_pairs(run, config, EXPERTS)
    with Annotations(run.path(ANNOTATIONS), "anna", WORDS) as own:
        for (query, image), row in pairs_of(run).items():
            own.put(row["pair_id"], "yes" if (query, image) == (query_id("a cat"), image_id(0)) else "no")
    built = label_again(run.folder)
    assert built.stats is not None
    assert built.stats["queries"]["without_match"] == 2 and built.stats["matches"]["min"] == 0
    assert "2 queries have no match" in built.stats["notes"][0]
    benchmark = read_benchmark(run.path("multimatch/benchmark"))
    assert len(benchmark.queries) == 3 and benchmark.matches[query_id("a dog")] == ()


def fill(path: Path, said: dict[str, str], default: str = "no") -> None:
    """Fill in a sheet as a person does in a spreadsheet."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows({**row, "label": said.get(row["pair_id"], default)} for row in rows)


def test_sheets_are_blind_and_the_same_for_all(paired: tuple[Run, Config], tmp_path: Path) -> None:
    run, config = paired
    labelled(run, config)
    assert write_sheet(run, config, tmp_path / "a.csv", "anna", None, None) == 18
    write_sheet(run, config, tmp_path / "b.csv", "ben", None, None)
    with (tmp_path / "a.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["pair_id", "query", "image", "label", "annotator"]
    text = (tmp_path / "a.csv").read_text("utf-8-sig")
    assert text.replace("anna", "ben") == (tmp_path / "b.csv").read_text("utf-8-sig")
    for hidden in ("one", "two", "yes", "groups", "proposed"):
        assert hidden not in text.replace(str(tmp_path), ""), hidden
    inside = {row["pair_id"] for row in pairs_of(run).values() if row["proposed"]}
    order = [row["pair_id"] in inside for row in rows]
    assert order != sorted(order) and order != sorted(order, reverse=True)
    with pytest.raises(DataError, match="exists, and may hold labels"):
        write_sheet(run, config, tmp_path / "a.csv", "anna", None, None)
    with pytest.raises(RunError, match=r"has all pairs \(seed 0\), and annotators must label the same one"):
        write_sheet(run, config, tmp_path / "c.csv", "cyd", 5, None)


def test_people_decide_where_they_labelled(paired: tuple[Run, Config], tmp_path: Path) -> None:
    run, config = paired
    labelled(run, config)
    cat, dog = (pairs_of(run)[query_id(text), image_id(0)]["pair_id"] for text in ("a cat", "a dog"))
    sheet = [row["pair_id"] for row in sheet_of(run, n=4, seed=7)]
    assert len(sheet) == 4 and [row["pair_id"] for row in sheet_of(run)] == sheet
    for name in ("anna", "ben"):
        write_sheet(run, config, tmp_path / f"{name}.csv", name, None, None)
    # Both turn the first pair's label round, and disagree on the second.
    groups = {row["pair_id"]: row["label"] for row in run.read("multimatch/labels/groups").to_pylist()}
    turned = {"yes": "no", "no": "yes"}[groups[sheet[0]]]
    fill(tmp_path / "anna.csv", {**groups, sheet[0]: turned, sheet[1]: "yes"})
    fill(tmp_path / "ben.csv", {**groups, sheet[0]: turned, sheet[1]: "no"})
    assert take_labels(run, [tmp_path / "anna.csv", tmp_path / "ben.csv"]) == 8
    built = label_again(run.folder)
    rows = {row["pair_id"]: row for row in run.read(MATCHES).to_pylist()}
    assert rows[sheet[0]]["label"] == turned
    assert rows[sheet[0]]["votes"] == [f"people/anna: {turned}", f"people/ben: {turned}"]
    assert (rows[sheet[1]]["label"], rows[sheet[1]]["reason"]) == ("unsure", "verifiers disagree")
    other = next(pair for pair in (cat, dog, *rows) if pair not in sheet)
    assert rows[other]["votes"] == [f"groups: {groups[other]}"]
    ignored = read_benchmark(run.path("multimatch/benchmark")).ignored
    assert [images for images in ignored.values() if images] == [(rows[sheet[1]]["image_id"],)]
    assert built.stats is not None and built.stats["undecided"] == {"verifiers disagree": 1}
    between = {(found["first"], found["second"]): found for found in built.stats["agreement"]}
    assert between["people/anna", "people/ben"]["equal"]["hits"] == 3
    assert {found["n"] for found in between.values()} == {4}
    assert len(stats_tables(built.stats)) == 5
    # The same labels again change nothing; another word makes what hangs on it anew.
    before = (run.manifest(MATCHES) or {})["finished"]
    assert take_labels(run, [tmp_path / "anna.csv"]) == 0
    label_again(run.folder)
    assert (run.manifest(MATCHES) or {})["finished"] == before
    fill(tmp_path / "ben.csv", {**groups, sheet[0]: turned, sheet[1]: "yes"})
    assert take_labels(run, [tmp_path / "ben.csv"]) == 1
    again = label_again(run.folder)
    assert again.stats is not None and again.stats["undecided"] == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: "\n".join(text.splitlines()[:-1]), "1 of the sheet's 18 are lacking"),
        (lambda text: text + "feedfeedfeedfeed,a,b,no,anna\n", "1 of its 19 pairs are not in it"),
        (lambda text: text.replace(",no,", ",nope,", 1), r"row 2: unknown label 'nope'; allowed are yes, no, unsure"),
        (lambda text: text.replace("pair_id", "id"), "has no column pair_id"),
        (lambda text: text.replace(",no,", ",,"), "no row has a label"),
        (lambda text: text.replace(",anna", ",../anna"), "annotator '../anna'"),
    ],
)
def test_sheets_that_do_not_fit(paired: tuple[Run, Config], tmp_path: Path, change: Any, message: str) -> None:
    run, config = paired
    write_sheet(run, config, tmp_path / "a.csv", "anna", None, None)
    fill(tmp_path / "a.csv", {})
    text = (tmp_path / "a.csv").read_text("utf-8-sig")
    (tmp_path / "a.csv").write_text(change(text), "utf-8-sig")
    with pytest.raises((DataError, RunError), match=message):
        take_labels(run, [tmp_path / "a.csv"])
    assert not list(run.path(ANNOTATIONS).glob("*.jsonl"))


def test_a_text_that_a_spreadsheet_would_run_is_quoted(paired: tuple[Run, Config], tmp_path: Path) -> None:
    run, config = paired
    rows = run.read("multimatch/queries").to_pylist()
    from tests.multimatch.conftest import benchmark_tables, commit

    commit(
        run,
        "multimatch/queries",
        benchmark_tables.ASKED,
        [{**row, "text": "=1+1" if row["text"] == "a dog" else row["text"]} for row in rows],
        wanted=3,
    )
    write_sheet(run, config, tmp_path / "a.csv", "anna", None, None)
    with (tmp_path / "a.csv").open(encoding="utf-8-sig", newline="") as file:
        queries = {row["query"] for row in csv.DictReader(file)}
    assert queries == {"a cat", "'=1+1", "a bird"}


def test_what_is_not_labelled_yet_counts_neither_way(tmp_path: Path) -> None:
    run, config = make(tmp_path, verify={"by": ["people"]})
    make_pairs(run, config, EXPERTS)
    waiting = label_again(run.folder)
    assert waiting.stats is None and waiting.waiting is not None and "no pair is labelled yet" in waiting.waiting
    with pytest.raises(RunError, match="has no labels yet"):
        stats_of(run, config)
    first = pairs_of(run)[query_id("a dog"), image_id(2)]["pair_id"]
    with Annotations(run.path(ANNOTATIONS), "anna", WORDS) as own:
        own.put(first, "yes")
    built = label_again(run.folder)
    assert built.stats is not None
    assert built.stats["completeness"] == {"not_labelled": 17, "all": None, "held_out": None, "with_teachers": None}
    assert built.stats["undecided"] == {"not labelled": 17}
    ignored = read_benchmark(run.path("multimatch/benchmark")).ignored
    assert len(ignored[query_id("a dog")]) == 5
    assert len(stats_tables(built.stats)) == 4


def test_the_review_task_shows_query_and_picture_alone(paired: tuple[Run, Config]) -> None:
    run, config = paired
    task = PairReview(run, config)
    assert task.items == tuple(row["pair_id"] for row in sheet_of(run))
    rows = {row["pair_id"]: key for key, row in pairs_of(run).items()}
    for item in task.items:
        query, image = rows[item]
        assert query_id(task.shown(item).text) == query
        assert task.picture(item, 0).getpixel((0, 0))[0] == 40 * int(image.removeprefix("image-"))


def test_copied_pictures_move_with_the_benchmark(tmp_path: Path) -> None:
    run, config = make(tmp_path, pictures="copy")
    make_pairs(run, config, EXPERTS)
    labelled(run, config)
    folder = run.path("multimatch/benchmark")
    found = read_benchmark(folder)
    assert {picture.uri for picture in found.gallery} == {"pictures-00000.tar"}
    data = (folder / "pictures-00000.tar").read_bytes()
    for picture in found.gallery:
        assert picture.offset is not None and picture.length is not None
        n = int(picture.id.removeprefix("image-"))
        assert data[picture.offset : picture.offset + picture.length] == (tmp_path / f"{n}.png").read_bytes()


def test_not_built_that_far(made: tuple[Run, Config]) -> None:
    run, config = made
    with pytest.raises(RunError, match="has no candidates to verify yet"):
        sheet_of(run)
    with pytest.raises(RunError, match=r"multimatch/pairs does not exist yet"):
        label_again(run.folder)
    make_pairs(run, config, EXPERTS)
    with pytest.raises(RunError, match=r"multimatch/labels/groups does not exist yet"):
        label_again(run.folder)
    with pytest.raises(RunError, match="there is no run at"):
        label_again(run.folder / "none")
