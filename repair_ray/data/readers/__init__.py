"""One door to every format: `read(path)` finds out what lies there. A new format: one module, and a name in READERS."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from repair_ray.data.files import expand, is_pattern, read_head
from repair_ray.data.readers import (
    arrow,
    clip_retrieval,
    coco,
    csv_rows,
    image_folder,
    img2dataset,
    json_rows,
    karpathy,
    parquet,
    token_file,
    webdataset,
)
from repair_ray.data.readers.base import Reader, ReadOptions, split_by_name
from repair_ray.data.readers.json_stream import shape
from repair_ray.data.records import DataError, Item, Problem, Record, canonical_split

# The first that takes the content reads it: layouts of several kinds of files before the kinds themselves, and what
# many files resemble last.
READERS: dict[str, Reader] = {
    reader.name: reader
    for reader in (
        img2dataset.READER,
        clip_retrieval.READER,
        webdataset.READER,
        parquet.READER,
        arrow.READER,
        karpathy.READER,
        coco.READER,
        image_folder.READER,
        token_file.READER,
        json_rows.READER,
        csv_rows.READER,
    )
}


def read(
    path: str,
    format: str | None = None,
    *,
    image_root: str | None = None,
    image_column: str | None = None,
    caption_column: str | None = None,
    group_column: str | None = None,
    split_column: str | None = None,
    id_column: str | None = None,
    split: str | None = None,
    batch_rows: int = 256,
) -> Iterator[Item]:
    """Stream the records and problems of a data set; every image_id comes once.

    `path` is a file, a folder, a glob, or has {braces}. `format` None is detected from content. With `split`, only
    rows of that split come (train, validation, test, or the source's own word); rows that name none count as that
    split. Where rows name no split, a file or folder name such as validation-00000-of-00002.parquet does.

    Raises DataError, at the first `next`: nothing there, an unknown format, columns that are missing or ambiguous;
    and at the end: no record at all, with what was found instead.
    """
    options = ReadOptions(
        image_root=image_root,
        image_column=image_column,
        caption_column=caption_column,
        group_column=group_column,
        split_column=split_column,
        id_column=id_column,
        batch_rows=batch_rows,
    )
    reader, files = find_reader(path, format)
    wanted = canonical_split(split)
    reasons: Counter[str] = Counter()
    splits: Counter[str] = Counter()
    example: Problem | None = None
    records = 0
    for item in reader.read(path, files, options):
        if isinstance(item, Problem):
            reasons[item.reason] += 1
            example = example or item
            yield item
            continue
        item.split = item.split or _split_by_name(item, path, len(files), wanted, reader.one_file_a_row)
        splits[str(item.split)] += 1
        if wanted is None or item.split == wanted:
            records += 1
            yield item
    if records == 0:
        raise DataError(_nothing(path, _which(reader, files), wanted, splits, reasons, example))


def find_reader(path: str, format: str | None = None) -> tuple[Reader, list[str]]:
    """The reader for `path` and the files it stands for. Raises DataError that names the format found."""
    if format is not None:
        if format not in READERS:
            raise DataError(f"unknown data.format {format!r}; known: {', '.join(READERS)}")
        files = _choose(READERS[format], path, expand(path))
        if not files and READERS[format].layout:
            raise DataError(f"the files of {path} are not laid out as {format}; correct the path or unset data.format")
        if not files:
            raise DataError(
                f"no file of layout {format} (*{', *'.join(READERS[format].suffixes)}) in {path}; "
                "correct the path or unset data.format"
            )
        if not READERS[format].detect(read_head(files[0])):
            raise DataError(
                f"{files[0]} is {_describe(read_head(files[0]))}, not {format}; unset data.format to detect it"
            )
        return READERS[format], files
    everything = expand(path)
    for reader in READERS.values():
        chosen = _choose(reader, path, everything)
        if chosen and reader.detect(read_head(chosen[0])):
            return reader, chosen
    if not everything:
        raise DataError(f"{path} is an empty folder")
    raise DataError(
        f"{'; '.join(f'{name} is {_describe(read_head(name))}' for name in _samples(everything))}, "
        f"which no reader takes; formats: {', '.join(READERS)} (data.format)"
    )


def _choose(reader: Reader, path: str, everything: list[str]) -> list[str]:
    """The files to read. One that is named alone may have any name; a pattern for files of one kind means them all."""
    if reader.layout:
        return reader.choose(everything)
    if is_pattern(path) and all(name.lower().endswith(reader.suffixes) for name in everything):
        return everything
    return reader.choose(everything) or (everything if len(everything) == 1 else [])


def _samples(everything: list[str]) -> list[str]:
    """Up to three files that tell best what lies there: those that a reader might take, else one of the most common."""
    suffixes = tuple(suffix for reader in READERS.values() for suffix in reader.suffixes)
    likely = [name for name in everything if name.lower().endswith(suffixes)]
    if likely:
        return sorted(likely, key=lambda name: (name.count("/"), name))[:3]
    typical = Counter(name.rpartition(".")[2] for name in everything).most_common(1)[0][0]
    return [name for name in everything if name.rpartition(".")[2] == typical][:1]


def _split_by_name(record: Record, path: str, file_count: int, wanted: str | None, one_file_a_row: bool) -> str | None:
    """The split that names tell; one file read for a split is of that split."""
    source = record.source.rpartition("/")[0] + "/" if one_file_a_row else record.source
    found = split_by_name(source, path)
    return found if found and (file_count > 1 or wanted is None) else wanted


def _which(reader: Reader, files: list[str]) -> str:
    """The layout and the files read, for messages about a folder that holds several."""
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return f"{reader.name}: {files[0].rpartition('/')[2]}{more}"


def _nothing(
    path: str,
    read_as: str,
    wanted: str | None,
    splits: Counter[str],
    reasons: Counter[str],
    example: Problem | None,
) -> str:
    if splits:
        counts = ", ".join(f"{name} ({count})" for name, count in splits.most_common())
        return (
            f"no row of split {wanted!r} in {path} ({read_as}); splits found: {counts}. "
            "Correct the path or the split; data.split_column='' ignores the column"
        )
    if example is None:
        return f"{path} ({read_as}) holds no rows"
    counts = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    hint = "; set data.image_root to the folder of the images" if "missing_image" in reasons else ""
    return f"no usable row in {path} ({read_as}): {counts}; the first: {example.source}: {example.detail}{hint}"


def _describe(head: bytes) -> str:
    """What a file looks like, for error messages only."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not text:
        return "an empty file"
    if head.startswith(b"PAR1"):
        return "a Parquet file"
    if head[257:262] == b"ustar":
        return "a tar (WebDataset?) file"
    if head.startswith(b"\x1f\x8b") or head.startswith(b"PK\x03\x04"):
        return "a compressed archive"
    if text[:1] in (b"{", b"["):
        for name in ("karpathy", "coco"):
            if READERS[name].detect(head):
                return f"a {name} JSON file"
        return f"a JSON file of another layout (its keys: {', '.join(shape(head).top()[:12])})"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "a UTF-16 text file; save it as UTF-8"
    if b"\0" not in head:
        first = text.splitlines()[0][:80].decode("utf-8", "replace")
        return f"a text file (its first line: {first!r}; {csv_rows.columns_found(head)})"
    return f"a binary file that starts with {head[:8]!r}"
