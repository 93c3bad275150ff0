"""A run directory: what is finished, what is stale, what a crash leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from repair_ray import tables
from repair_ray.run import MANIFEST, Recipe, Run, RunError, read_json, write_json

LOCK_HOLDER = """
import sys
from repair_ray.run import Run
with Run(sys.argv[1]).locked():
    print("held", flush=True)
    sys.stdin.readline()
"""


def verdicts(*ids: str) -> pa.Table:
    rows: list[dict[str, object]] = [
        {"failure_id": i, "direction": "i2t", "status": "ok", "reason": None}
        if i < "x"
        else {"failure_id": i, "direction": "i2t", "status": "error", "reason": "broken"}
        for i in ids
    ]
    return tables.to_table(rows, tables.VERDICTS.schema)


def commit(run: Run, product: str, recipe: Recipe, *ids: str) -> None:
    run.ready(product, recipe)
    run.commit(product, recipe, tables.VERDICTS, verdicts(*ids), 2.0)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


class TestRecords:
    def test_a_record_says_when_its_stage_worked(self, run: Run) -> None:
        recipe = Recipe({"seed": 1})
        run.ready("a", recipe)
        # As a run leaves it that was stopped and went on an hour later.
        begun = read_json(run.path("a") / "begun.json") or {}
        write_json(run.path("a") / "begun.json", {**begun, "started": begun["started"] - 3600})
        run.finish("a", recipe, 12.5)
        (record,) = run.records()
        assert record.seconds == 12.5
        assert record.started == begun["started"] - 3600
        assert record.finished - record.started == pytest.approx(3600, abs=60)

    def test_a_product_of_an_earlier_version_worked_without_a_break(self, run: Run) -> None:
        commit(run, "a", Recipe({}), "f1")
        manifest = read_json(run.path("a") / MANIFEST) or {}
        del manifest["started"]
        write_json(run.path("a") / MANIFEST, manifest)
        (record,) = run.records()
        assert record.started == record.finished - 2.0


class TestReady:
    def test_unfinished_then_finished(self, run: Run) -> None:
        recipe = Recipe({"seed": 1})
        assert run.ready("base", recipe) is False
        assert run.manifest("base") is None
        run.finish("base", recipe, 1.5, rows=3, note="x")
        assert run.ready("base", recipe) is True
        manifest = run.manifest("base")
        assert manifest is not None
        assert (manifest["rows"], manifest["note"], manifest["seconds"]) == (3, "x", 1.5)
        assert not (run.path("base") / "begun.json").exists()

    @pytest.mark.parametrize("finished", [True, False])
    def test_a_changed_setting_is_refused_by_name(self, run: Run, finished: bool) -> None:
        # A half-made product with other settings is refused just as a finished one.
        run.ready("round1/failures", Recipe({"mining": {"k": 5, "keep": "top_k"}}))
        if finished:
            run.finish("round1/failures", Recipe({"mining": {"k": 5, "keep": "top_k"}}), 0)
        with pytest.raises(RunError) as caught:
            run.ready("round1/failures", Recipe({"mining": {"k": 3, "keep": "top_k"}}))
        assert "mining.k was 5, is now 3" in str(caught.value)
        assert "mining.keep" not in str(caught.value)
        assert "--redo round1/failures" in str(caught.value)
        assert run.ready("round1/failures", Recipe({"mining": {"k": 5, "keep": "top_k"}})) is finished

    def test_new_and_dropped_settings_are_named(self, run: Run) -> None:
        run.ready("a", Recipe({"old": 1}))
        with pytest.raises(RunError, match="new was None, is now 2; old was 1, is now None"):
            run.ready("a", Recipe({"new": 2}))

    def test_a_new_version_of_the_code_is_named(self, run: Run) -> None:
        run.ready("a", Recipe({}, version=1))
        with pytest.raises(RunError, match="the stage's code was version 1, is now 2"):
            run.ready("a", Recipe({}, version=2))

    def test_a_parent_must_be_finished(self, run: Run) -> None:
        with pytest.raises(RunError, match="images must be finished first"):
            run.ready("embeddings", Recipe({}, ("images",)))

    def test_a_parent_made_anew_with_other_settings_makes_its_child_stale(self, run: Run) -> None:
        commit(run, "parent", Recipe({"seed": 1}), "a")
        commit(run, "child", Recipe({}, ("parent",)), "a")
        (run.path("parent") / MANIFEST).unlink()
        commit(run, "parent", Recipe({"seed": 2}), "a")
        with pytest.raises(RunError, match="parent was made anew"):
            run.ready("child", Recipe({}, ("parent",)))

    def test_tuples_and_lists_are_the_same_setting(self, run: Run) -> None:
        run.ready("a", Recipe({"directions": ("i2t", "t2i")}))
        run.finish("a", Recipe({"directions": ["i2t", "t2i"]}), 0)
        assert run.ready("a", Recipe({"directions": ("i2t", "t2i")}))


class TestCommit:
    def test_rows_come_back_sorted_with_counts(self, run: Run) -> None:
        commit(run, "verdicts", Recipe({}), "c", "a", "y", "b", "z")
        assert run.read("verdicts")["failure_id"].to_pylist() == ["a", "b", "c", "y", "z"]
        assert run.read("verdicts").schema.equals(tables.VERDICTS.schema)
        assert run.read("verdicts", ["status"]).column_names == ["status"]
        (record,) = run.records()
        assert (record.name, record.rows, record.seconds, record.rows_per_second) == ("verdicts", 5, 2.0, 2.5)
        assert record.statuses == {"ok": 3, "error": 2} and record.reasons == {"broken": 2}

    def test_no_rows(self, run: Run) -> None:
        commit(run, "verdicts", Recipe({}))
        assert len(run.read("verdicts")) == 0
        assert run.records()[0].rows == 0

    def test_large_tables_are_split_and_read_back_in_order(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("repair_ray.tables.files.MAX_ROWS_PER_FILE", 2)
        commit(run, "verdicts", Recipe({}), "e", "d", "c", "b", "a")
        assert len(list(run.path("verdicts").glob("part-*.parquet"))) == 3
        assert run.read("verdicts")["failure_id"].to_pylist() == ["a", "b", "c", "d", "e"]
        # Made again with fewer rows, no old part is left.
        commit(run, "verdicts", Recipe({}), "a")
        assert run.read("verdicts")["failure_id"].to_pylist() == ["a"]

    def test_a_crash_before_the_manifest_leaves_no_product(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        recipe = Recipe({"k": 1})

        def crash(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Run, "finish", crash)
            with pytest.raises(KeyboardInterrupt):
                commit(run, "verdicts", recipe, "a", "b")
        assert list(run.path("verdicts").glob("part-*.parquet")), "the rows are there"
        assert run.manifest("verdicts") is None and list(run.products()) == []
        with pytest.raises(RunError, match="verdicts does not exist yet"):
            run.read("verdicts")
        assert run.ready("verdicts", recipe) is False
        commit(run, "verdicts", recipe, "a")
        assert len(run.read("verdicts")) == 1

    def test_a_crash_inside_the_manifest_leaves_no_product(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        def crash(*_: object) -> None:
            raise OSError("power cut")

        run.ready("a", Recipe({}))
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", crash)
            with pytest.raises(OSError, match="power cut"):
                run.finish("a", Recipe({}), 0)
        assert run.ready("a", Recipe({})) is False

    def test_rows_of_another_schema_are_refused(self, run: Run) -> None:
        run.ready("verdicts", Recipe({}))
        with pytest.raises(ValueError, match="schema"):
            run.commit("verdicts", Recipe({}), tables.VERDICTS, pa.table({"a": [1]}), 0)
        assert run.manifest("verdicts") is None


class TestRedo:
    @pytest.fixture
    def family(self, run: Run) -> Run:
        #  images -> embeddings -> failures -> verdicts (half-made);  images -> base;  round2/failures hangs on base
        commit(run, "images", Recipe({}), "a")
        commit(run, "embeddings", Recipe({}, ("images",)), "a")
        commit(run, "round1/failures", Recipe({}, ("embeddings",)), "a")
        commit(run, "base", Recipe({}, ("images",)), "a")
        commit(run, "round2/failures", Recipe({}, ("base",)), "a")
        run.ready("round1/verdicts", Recipe({}, ("round1/failures",)))
        return run

    def left(self, run: Run) -> set[str]:
        return {name for name, _ in run.products()}

    def test_what_hangs_on_a_stage_goes_with_it(self, family: Run) -> None:
        assert family.redo("embeddings") == ["embeddings", "round1/failures", "round1/verdicts"]
        assert self.left(family) == {"images", "base", "round2/failures"}
        assert not family.path("round1/verdicts").exists()

    def test_a_stage_name_stands_for_every_round(self, family: Run) -> None:
        assert family.redo("failures") == ["round1/failures", "round1/verdicts", "round2/failures"]
        assert self.left(family) == {"images", "base", "embeddings"}

    def test_a_full_name_stands_for_one(self, family: Run) -> None:
        assert family.redo("round2/failures") == ["round2/failures"]
        assert "round1/failures" in self.left(family)

    def test_a_half_made_product_can_be_redone(self, family: Run) -> None:
        assert family.redo("verdicts") == ["round1/verdicts"]
        assert family.ready("round1/verdicts", Recipe({"other": 1}, ("round1/failures",))) is False

    def test_the_root_takes_everything(self, family: Run) -> None:
        (family.folder / "summary.json").write_text("{}")
        family.redo("images")
        assert self.left(family) == set()
        assert not (family.folder / "summary.json").exists(), "it tells of what is no more"

    def test_an_unknown_stage_names_the_known_ones(self, family: Run) -> None:
        with pytest.raises(RunError, match=r"--redo fialures: no such stage.*round1/failures, round1/verdicts"):
            family.redo("fialures")
        assert len(self.left(family)) == 5


def test_products_come_in_the_order_in_which_they_were_finished(run: Run) -> None:
    for name in ("z", "a", "m/n"):
        commit(run, name, Recipe({}), "a")
    assert [name for name, _ in run.products()] == ["z", "a", "m/n"]


class TestLock:
    def test_held_by_another_process(self, tmp_path: Path) -> None:
        folder = tmp_path / "run"
        holder = subprocess.Popen(
            [sys.executable, "-c", LOCK_HOLDER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert holder.stdin and holder.stdout
        try:
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(RunError, match=f"another process works in {folder}"), Run(folder).locked():
                pass
        finally:
            holder.stdin.close()
            holder.wait(30)
        with Run(folder).locked():
            pass  # free once the other process is gone

    def test_a_killed_holder_leaves_no_lock(self, tmp_path: Path) -> None:
        holder = subprocess.Popen(
            [sys.executable, "-c", LOCK_HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert holder.stdout and holder.stdout.readline() == "held\n"
        holder.kill()
        holder.communicate()
        with Run(tmp_path).locked():
            pass

    def test_the_folder_is_made(self, tmp_path: Path) -> None:
        with Run(tmp_path / "new" / "run").locked():
            assert (tmp_path / "new" / "run").is_dir()

    def test_a_place_that_cannot_be_written(self, tmp_path: Path) -> None:
        # A file in place of the folder: root may write into read-only folders.
        (tmp_path / "file").write_text("")
        for folder in (tmp_path / "file", tmp_path / "file" / "run"):
            with pytest.raises(RunError, match=r"cannot write to .*; set output= to a writable folder"):  # noqa: SIM117
                with Run(folder).locked():
                    pass

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_a_read_only_folder(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o500)
        with pytest.raises(RunError, match="Permission denied"), Run(tmp_path / "run").locked():
            pass

    def test_an_error_inside_is_passed_on_and_the_lock_is_freed(self, tmp_path: Path) -> None:
        with pytest.raises(OSError, match="no such picture"), Run(tmp_path).locked():
            raise OSError("no such picture")
        with Run(tmp_path).locked():
            pass


def test_json_files(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    assert read_json(path) is None
    write_json(path, {"b": 1, "a": "\u732b"})
    assert read_json(path) == {"a": "\u732b", "b": 1}
    assert "\u732b" in path.read_text(encoding="utf-8")
    assert [found.name for found in tmp_path.iterdir()] == ["a.json"], "no temporary file is left"


def test_seconds_of_killed_processes_count(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.ready("a", Recipe({}))
    run.clock("a").keep(total=3)
    begun = tmp_path / "a" / "begun.json"
    write_json(begun, {**(read_json(begun) or {}), "seconds": 100.0})
    clock = run.clock("a")
    clock.keep()
    clock.keep()
    assert 100 <= clock.seconds < 110 and 100 <= (read_json(begun) or {})["seconds"] < 110
    assert (read_json(begun) or {})["total"] == 3 and not run.ready("a", Recipe({}))
