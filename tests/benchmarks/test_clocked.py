"""Windows and gaps of batches, by hand, and a real stage that writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import clocked
from benchmarks.clocked import Batch, ClockedEmbed, gap, read_batches, replaced, window
from repair_ray import tables
from repair_ray.config import DataConfig
from repair_ray.stages import embed


def batch(begun: float, ended: float, process: str = "a") -> Batch:
    return Batch(process, begun, ended, 8, 2)


def test_what_lies_between_batches_is_a_share_of_the_window() -> None:
    batches = [batch(10.0, 14.0), batch(14.5, 18.0), batch(18.5, 20.0)]
    assert window(batches) == 10.0
    assert gap(batches) == pytest.approx(0.1)
    with pytest.raises(AssertionError, match="one process"):
        gap([batch(0, 1), batch(0, 1, "b")])


def test_a_stage_tells_each_of_its_batches_and_does_its_own_work(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    stage = ClockedEmbed(
        id_column="item_id",
        schema=tables.EMBEDDINGS.schema,
        markers=str(tmp_path / "markers"),
        poison={},
        arguments={
            "folder": str(tmp_path / "run"),
            "data": DataConfig(train="none", test="none").model_dump(mode="json"),
            "spec": {"model": "tiny-64"},
            "device": "cpu",
            "batch_size": 4,
        },
    )
    for size in (3, 2):
        columns = {"item_id": list("abc"[:size]), "kind": ["caption"] * size, "text": ["a red square"] * size}
        made = stage(tables.filled(columns | {"split": ["train"] * size}, tables.ITEMS))
        assert made["status"].to_pylist() == ["ok"] * size
    found = read_batches(tmp_path / "run", "ClockedEmbed")
    assert [batch.rows for batch in found] == [3, 2]
    assert found[0].begun < found[0].ended <= found[1].begun
    assert read_batches(tmp_path / "run", "ClockedMake") == []


def test_the_engine_has_its_own_stage_again_whatever_happened() -> None:
    own = embed.EmbedItems
    with pytest.raises(RuntimeError, match="stop"), replaced(embed, EmbedItems=ClockedEmbed):
        assert embed.EmbedItems is clocked.ClockedEmbed
        raise RuntimeError("stop")
    assert embed.EmbedItems is own
