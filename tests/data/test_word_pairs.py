"""Lists of confusable pairs: CSV, TSV and Parquet, and what is wrong with others."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from repair_ray.data.records import DataError
from repair_ray.data.word_pairs import read_word_pairs


@pytest.mark.parametrize(
    "text",
    [
        "word,other\nRegen,Schnee\n\nrot , blau\n,leer\n",
        "other;note;word\nSchnee;x;Regen\nblau;y;rot\n",
        "\ufeffWord\tOther\r\nRegen\tSchnee\r\nrot\tblau\r\n",
    ],
)
def test_text_files(tmp_path: Path, text: str) -> None:
    (tmp_path / "pairs.csv").write_text(text, encoding="utf-8")
    assert read_word_pairs(str(tmp_path / "pairs.csv")) == [("Regen", "Schnee"), ("rot", "blau")]


def test_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.table({"word": ["a", None], "other": ["b", "c"], "cosine": [0.9, 0.8]}), tmp_path / "p.parquet")
    assert read_word_pairs(str(tmp_path / "p.parquet")) == [("a", "b")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("one,two\na,b\n", "has no column 'word'.*found: one, two"),
        ("", "has no column 'word'"),
        ("word,other\n", "holds no pair"),
        ("word,other\na,b\nDog,dog\n", "pair 2: 'Dog' is paired with itself"),
    ],
)
def test_other_files(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "pairs.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        read_word_pairs(str(tmp_path / "pairs.csv"))
    with pytest.raises(DataError, match="cannot read"):
        read_word_pairs(str(tmp_path / "absent.csv"))
    (tmp_path / "x.parquet").write_text("no")
    with pytest.raises(DataError, match="as Parquet"):
        read_word_pairs(str(tmp_path / "x.parquet"))
