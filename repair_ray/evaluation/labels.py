"""Labels that people give to failures: sheets to fill in, and filled-in sheets read back.

A sheet does not show what the judge said. Cells that a spreadsheet would take for a formula start with an apostrophe;
reading back looks at the ids, labels and annotators alone, so it does not matter what a spreadsheet did to the rest.
"""

from __future__ import annotations

import csv
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from repair_ray.data.records import DataError
from repair_ray.evaluation.agreement import JUDGEMENTS, NO_VERDICT

Row = dict[str, Any]

FAILURE_ID, LABEL, ANNOTATOR = "failure_id", "label", "annotator"
SIDES = ("query", "candidate")
SHEET = (
    FAILURE_ID,
    "direction",
    *(f"{side}_{part}" for part in ("text", "image", "captions") for side in SIDES),
    LABEL,
    ANNOTATOR,
)
DELIMITERS = ",;\t"
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
MANY_CAPTIONS = " | "


@dataclass(frozen=True)
class Labels:
    """What people said: `{annotator: {item: label}}`, and how many rows have no label (yet).

    `listed`: the items of each annotator's rows, labelled or not.
    """

    by_annotator: dict[str, dict[str, str]]
    unlabelled: int
    listed: dict[str, set[str]]

    @property
    def failures(self) -> set[str]:
        """Every item that somebody labelled."""
        return {failure for own in self.by_annotator.values() for failure in own}


def read_labels(paths: Sequence[Path], item: str = FAILURE_ID, allowed: Sequence[str] = JUDGEMENTS) -> Labels:
    """Read label files: CSV (with comma, semicolon or tab) or Parquet, with the item's id, `label` and `annotator`.

    Rows without an annotator are those of an annotator named after their file. Rows without a label are counted.

    Args:
        item: the column of ids; `allowed`: the labels that may be given.

    Raises:
        DataError: a file that is not there or not a table, a missing column, an unknown label, a label without an
            item, one annotator with two different labels for an item, or no label at all.
    """
    labels: dict[str, dict[str, str]] = {}
    listed: dict[str, set[str]] = {}
    unlabelled = 0
    stems = [path.stem for path in paths]
    for path in paths:
        name = path.stem if stems.count(path.stem) == 1 else str(path)
        for place, row in _rows(path, item):
            identity, label = row[item], row[LABEL]
            annotator = row.get(ANNOTATOR) or name
            if identity:
                listed.setdefault(annotator, set()).add(identity)
            if not label:
                unlabelled += bool(identity)
                continue
            if not identity:
                raise DataError(f"{path}, {place}: a label without a {item}")
            if label not in allowed:
                raise DataError(f"{path}, {place}: unknown {LABEL} {label!r}; allowed are {', '.join(allowed)}")
            known = labels.setdefault(annotator, {}).setdefault(identity, label)
            if known != label:
                raise DataError(
                    f"{path}, {place}: {annotator} labels {item.removesuffix('_id')} {identity} {label!r}, and "
                    f"{known!r} in another row; keep one of them"
                )
    if not labels:
        raise DataError(f"{', '.join(map(str, paths))}: no row has a {LABEL}; write one of {', '.join(allowed)}")
    return Labels(labels, unlabelled, listed)


def _rows(path: Path, item: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Each row with its place, as people count: in a CSV the header is row 1."""
    try:
        with path.open("rb") as file:
            parquet = file.read(4) == b"PAR1"
        yield from _parquet_rows(path, item) if parquet else _csv_rows(path, item)
    except FileNotFoundError:
        raise DataError(f"there is no labels file at {path}") from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8; save it as CSV in UTF-8") from None
    except (OSError, csv.Error, pa.ArrowException) as error:
        raise DataError(f"{path} cannot be read as CSV or Parquet: {error}") from None


def _csv_rows(path: Path, item: str) -> Iterator[tuple[str, dict[str, str]]]:
    # utf-8-sig: spreadsheets put a byte order mark first.
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = file.readline()
        file.seek(0)
        reader = csv.reader(file, delimiter=max(DELIMITERS, key=header.count))
        names = [name.strip() for name in next(reader, [])]
        _check_columns(path, names, item)
        for number, cells in enumerate(reader, start=2):
            short = [""] * (len(names) - len(cells))
            yield f"row {number}", dict(zip(names, [cell.strip() for cell in cells] + short, strict=False))


def _parquet_rows(path: Path, item: str) -> Iterator[tuple[str, dict[str, str]]]:
    names = pq.read_schema(path).names
    _check_columns(path, names, item)
    table = pq.read_table(path, columns=[name for name in (item, LABEL, ANNOTATOR) if name in names])
    for number, row in enumerate(table.to_pylist(), start=1):
        yield f"row {number}", {name: "" if value is None else str(value).strip() for name, value in row.items()}


def _check_columns(path: Path, names: list[str], item: str) -> None:
    missing = [name for name in (item, LABEL) if name not in names]
    if missing:
        raise DataError(f"{path} has no column {' and no column '.join(missing)}; it has: {', '.join(names) or 'none'}")
    twice = [name for name in (item, LABEL, ANNOTATOR) if names.count(name) > 1]
    if twice:
        raise DataError(f"{path} has the column {twice[0]} twice; keep one of them")


def draw(verdicts: Sequence[Row], n: int, seed: int) -> list[str]:
    """Ids of `n` failures (or of all, where there are fewer) to label, in a shuffled order, the same for a seed.

    Each judgement of each direction comes in proportion, and at least once: shares over the sample are, but for
    that, shares over all failures, and so they are over the first rows of a sheet that nobody finished.
    """
    return draw_strata(
        ((row[FAILURE_ID], (row["direction"], row["judgement"] or NO_VERDICT)) for row in verdicts), n, seed
    )


def draw_strata(items: Iterable[tuple[str, tuple[str, str]]], n: int, seed: int) -> list[str]:
    """`n` of the items (or all, where there are fewer), in a shuffled order, the same for a seed, whatever their order.

    Each stratum comes in proportion to its size, and at least once while `n` allows it.

    Args:
        items: ids with their strata.
    """
    rng = random.Random(seed)
    strata: dict[tuple[str, str], list[str]] = defaultdict(list)
    for item, stratum in sorted(items):
        strata[stratum].append(item)
    counts = _in_proportion({key: len(strata[key]) for key in sorted(strata)}, n)
    drawn = [item for key, count in counts.items() for item in rng.sample(strata[key], count)]
    rng.shuffle(drawn)
    return drawn


def _in_proportion(sizes: dict[tuple[str, str], int], n: int) -> dict[tuple[str, str], int]:
    total = sum(sizes.values())
    if n >= total:
        return sizes
    due = {key: n * size / total for key, size in sizes.items()}
    counts = {key: max(1, int(share)) for key, share in due.items()}
    while sum(counts.values()) < n:
        key = max(counts, key=lambda key: due[key] - counts[key])
        counts[key] += 1
    while sum(counts.values()) > n:
        key = max(counts, key=lambda key: (counts[key], counts[key] - due[key]))
        counts[key] -= 1
    return counts


def write_sheet(path: Path, rows: Iterable[Row]) -> None:
    """Write rows of the columns of `SHEET` as CSV, with empty labels and annotators.

    `*_captions` are lists. Raises `DataError` where the file exists: it may hold somebody's labels.
    """
    try:
        with path.open("x", encoding="utf-8-sig", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(SHEET)
            for row in rows:
                shown = {f"{side}_captions": MANY_CAPTIONS.join(row[f"{side}_captions"]) for side in SIDES}
                values = {**row, **shown, LABEL: "", ANNOTATOR: ""}
                writer.writerow([safe_cell(values[name] or "") for name in SHEET])
    except FileExistsError:
        raise DataError(f"{path} exists, and may hold labels; name another file") from None


def safe_cell(text: str) -> str:
    """The text, after an apostrophe where a spreadsheet would run it as a formula (OWASP, CSV injection)."""
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text
