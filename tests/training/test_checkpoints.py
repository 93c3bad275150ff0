"""Checkpoints by their seals: the newest whole one, on a disk and in an object store; what a new start clears away."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyarrow import fs

from repair_ray.config import TrainingConfig
from repair_ray.run import RunError
from repair_ray.training.checkpoints import SEAL, Checkpoints, seal
from repair_ray.training.job import STATE_PLACE, Progress, discard_state, state_of


@pytest.fixture(params=["disk", "memory", "s3"])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> Checkpoints:
    """A place on this disk, one that is reached through fsspec, and one in an object store."""
    if request.param == "disk":
        return Checkpoints(str(tmp_path / "state"))
    root = f"memory://{uuid.uuid4().hex}" if request.param == "memory" else request.getfixturevalue("bucket")
    return Checkpoints(root, f"{uuid.uuid4().hex}/training")


def put(state: Checkpoints, folder: str, step: int, scratch: Path, text: str = "weights") -> None:
    """Upload a checkpoint of two files and its seal."""
    made = scratch / uuid.uuid4().hex
    made.mkdir()
    (made / "state.pt").write_text(f"{text} {step}")
    (made / "progress.json").write_text(json.dumps({"step": step}))
    seal(made, step)
    system, root = state.where
    system.create_dir(f"{root}/{folder}", recursive=True)
    fs.copy_files(str(made), f"{root}/{folder}", destination_filesystem=system)


def spoil(state: Checkpoints, path: str, content: bytes | None) -> None:
    """Overwrite a file, or delete it."""
    system, root = state.where
    if content is None:
        system.delete_file(f"{root}/{path}")
        return
    with system.open_output_stream(f"{root}/{path}") as file:
        file.write(content)


def newest(state: Checkpoints) -> tuple[str, str] | None:
    with state.newest() as found:
        return None if found is None else (found[0].folder, (found[1] / "state.pt").read_text())


def test_nothing_yet(state: Checkpoints) -> None:
    assert newest(state) is None
    assert state.begin() == "start-0001"


def test_the_newest_of_all_starts_wins(state: Checkpoints, tmp_path: Path) -> None:
    put(state, "start-0001/b", 20, tmp_path)
    put(state, "start-0001/a", 100, tmp_path)
    put(state, "start-0002/c", 40, tmp_path)
    assert newest(state) == ("start-0001/a", "weights 100")
    assert [one.step for one in state.sealed()] == [100, 40, 20]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("state.pt", b"weights 2"),  # cut
        ("state.pt", b"weighty 20"),  # as long as it was
        ("state.pt", None),
        ("progress.json", b""),
        (SEAL, None),  # the upload was not finished
        (SEAL, b'{"step": 20, "files": {"sta'),
        (SEAL, b"[]"),
    ],
)
def test_a_damaged_one_falls_back_to_the_one_before(
    state: Checkpoints, tmp_path: Path, file: str, content: bytes | None
) -> None:
    put(state, "start-0001/a", 10, tmp_path)
    put(state, "start-0001/b", 20, tmp_path)
    spoil(state, f"start-0001/b/{file}", content)
    assert newest(state) == ("start-0001/a", "weights 10")
    spoil(state, "start-0001/a/state.pt", b"")
    assert newest(state) is None


def test_a_new_start_keeps_the_newest_two(state: Checkpoints, tmp_path: Path) -> None:
    for folder, step in (("start-0001/a", 30), ("start-0002/b", 10), ("start-0009/c", 20), ("start-0009/d", 5)):
        put(state, folder, step, tmp_path)
    spoil(state, "start-0009/d/seal.json", None)
    assert state.begin() == "start-0010"
    system, root = state.where
    left = system.get_file_info(fs.FileSelector(root, recursive=True))
    names = {info.path.split(f"{root.strip('/')}/")[-1] for info in left if info.base_name == "state.pt"}
    assert names == {"start-0001/a/state.pt", "start-0009/c/state.pt"}
    assert not any("start-0002" in info.path for info in left)


def test_states_of_older_versions_are_cleared_away(tmp_path: Path) -> None:
    (tmp_path / "checkpoint_2026-01-01_10-00-00.000001").mkdir()
    assert Checkpoints(str(tmp_path)).begin() == "start-0001"
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_named(read_only: Path) -> None:
    with pytest.raises(RunError, match=r"checkpoints cannot be kept in .*read_only/state: .*training\.storage"):
        Checkpoints(str(read_only / "state")).begin()
    with pytest.raises(RunError, match=r"cannot be kept in nowhere://bucket: .*training\.storage"):
        Checkpoints("nowhere://bucket").begin()


def test_a_bucket_that_is_not_there_is_named(bucket: str) -> None:
    with pytest.raises(RunError, match=r"checkpoints cannot be kept in s3://other: Bucket 'other' not found"):
        Checkpoints("s3://other", "run").begin()


@dataclass
class Plain:
    """A run as plain values."""

    name: str
    folder: str
    training: TrainingConfig
    validation: str | None = None


def job(run: Path, storage: str | None, name: str = "round-1/training") -> Plain:
    (run / name).mkdir(parents=True, exist_ok=True)
    return Plain(name, str(run / name), TrainingConfig(storage=storage))


class TestPlace:
    def test_without_storage_it_is_below_the_product(self, tmp_path: Path) -> None:
        assert state_of(job(tmp_path, None)) == Checkpoints(str(tmp_path / "round-1/training/state"))

    def test_in_a_store_no_two_runs_products_or_beginnings_mix(self, tmp_path: Path) -> None:
        first = state_of(job(tmp_path / "flickr", "s3://bucket/a"))
        assert first.root == "s3://bucket/a" and first.inside.startswith("flickr/round-1/training/")
        assert state_of(job(tmp_path / "flickr", "s3://bucket/a")) == first, "the same at each start"
        others = [
            job(tmp_path / "flickr", "s3://bucket/a", "base/training"),
            job(tmp_path / "x/flickr", "s3://bucket/a"),
        ]
        (tmp_path / "flickr/round-1/training" / STATE_PLACE).unlink()  # as --redo does
        others.append(job(tmp_path / "flickr", "s3://bucket/a"))
        assert len({first.inside, *(state_of(other).inside for other in others)}) == 4

    def test_another_storage_is_refused_while_a_training_goes_on(self, tmp_path: Path) -> None:
        state_of(job(tmp_path, "s3://bucket/a"))
        with pytest.raises(RunError, match=r"began with training\.storage=s3://bucket/a.*now None: set it back"):
            state_of(job(tmp_path, None))

    def test_nothing_is_left_of_a_finished_one(self, tmp_path: Path) -> None:
        store = tmp_path / "store"
        one, other = (state_of(job(tmp_path / "run", str(store), name)) for name in ("base/training", "training"))
        put(one, "start-0001/a", 10, tmp_path)
        put(other, "start-0001/a", 20, tmp_path)
        for _ in range(2):
            discard_state(tmp_path / "run/base/training")
        assert newest(one) is None
        assert newest(other) == ("start-0001/a", "weights 20")
        assert not list((tmp_path / "run/base/training").iterdir())


def test_when_a_training_is_finished() -> None:
    config = TrainingConfig(steps=10, patience=2)
    assert [Progress(step=9).finished(config), Progress(step=10).finished(config)] == [False, True]
    assert [Progress(step=3, stale=1).finished(config), Progress(step=3, stale=2).finished(config)] == [False, True]
    assert not Progress(step=3, stale=2).finished(TrainingConfig(steps=10))
