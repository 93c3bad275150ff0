from __future__ import annotations

import hashlib
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from repair_ray.world.generate import make_scenes, make_world, random_scene, sibling
from repair_ray.world.render import scene_of
from repair_ray.world.scene import Scene, content
from repair_ray.world.truth import describes, edit_distance

FILES = ["test.parquet", "train.parquet", "validation.parquet"]


def digest(folder: Path) -> str:
    return hashlib.sha256(b"".join((folder / name).read_bytes() for name in FILES)).hexdigest()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("worlds") / "new" / "world"
    make_world(folder, train=120, validation=41, test=50, seed=3)
    return folder


def scenes(path: Path) -> list[Scene]:
    return [scene_of(row["image"]["bytes"]) for row in pq.read_table(path).to_pylist()]


def test_files_and_columns(world: Path) -> None:
    assert sorted(path.name for path in world.iterdir()) == FILES
    sizes = {"train": 120, "validation": 41, "test": 50}
    for split, size in sizes.items():
        table = pq.read_table(world / f"{split}.parquet")
        assert table.schema.field("image").type == pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        assert table.schema.field("captions").type.value_type == pa.string()
        assert table.num_rows == size
        rows = table.to_pylist()
        assert len({row["image"]["bytes"] for row in rows}) == size
        for row in rows:
            assert len(set(row["captions"])) == 5
            assert all(describes(caption, scene_of(row["image"]["bytes"])) for caption in row["captions"])


def test_no_content_twice_in_the_world(world: Path) -> None:
    contents = [content(scene) for name in FILES for scene in scenes(world / name)]
    assert len(set(contents)) == len(contents) == 211


def test_near_misses_abound_within_a_split(world: Path) -> None:
    """Families of four: nearly every scene has another one at distance one in its own split."""
    train = scenes(world / "train.parquet")
    near = [min(edit_distance(a, b) for b in train if b is not a) for a in train]
    assert sum(distance == 1 for distance in near) > 0.95 * len(train)
    # Without distractors there are hardly any.
    alone = make_scenes(60, 3, 0, set())
    assert sum(min(edit_distance(a, b) for b in alone if b is not a) == 1 for a in alone) < 12


def test_siblings_differ_in_exactly_one_thing() -> None:
    rng = random.Random(4)
    for _ in range(300):
        base = random_scene(rng)
        near = sibling(base, rng)
        assert edit_distance(base, near) == 1
        assert near.background != base.background
        assert len({(group.shape, group.colour) for group in near.groups}) == len(near.groups)


def test_world_depends_on_its_arguments_alone(world: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from repair_ray.world.generate import make_world\n"
        "make_world(Path(sys.argv[1]), 120, 41, 50, 3)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "other")], check=True)
    assert digest(tmp_path / "other") == digest(world)
    make_world(tmp_path / "third", 120, 41, 50, seed=4)
    assert digest(tmp_path / "third") != digest(world)


def test_failure_leaves_the_old_world(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_world(tmp_path, 8, 4, 4, seed=1)
    before = digest(tmp_path)

    def fails(*_: object) -> list[str]:
        raise OSError("No space left on device")

    monkeypatch.setattr("repair_ray.world.generate.captions", fails)
    with pytest.raises(OSError, match="No space left"):
        make_world(tmp_path, 8, 4, 4, seed=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES
    assert digest(tmp_path) == before


def test_sizes_below_zero_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="validation is -1"):
        make_world(tmp_path, 1, -1, 1, seed=0)
    with pytest.raises(ValueError, match="distractors is -2"):
        make_world(tmp_path, 1, 1, 1, seed=0, distractors=-2)


def test_a_world_that_is_exhausted_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repair_ray.world.generate._GROUPS_WEIGHTS", (1, 0, 0))
    with pytest.raises(ValueError, match=r"found only \d+ of 2000 new scenes; ask for a smaller world"):
        make_scenes(2000, 0, 0, set())
