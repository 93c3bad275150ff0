"""What img2dataset leaves: 00000.tar (or a folder 00000, or pictures in the table), and the table 00000.parquet."""

from __future__ import annotations

import re
from collections.abc import Iterator

from repair_ray.data.readers import image_folder, parquet
from repair_ray.data.readers.base import Reader, ReadOptions
from repair_ray.data.readers.parquet_columns import is_bytes
from repair_ray.data.readers.tar_headers import is_tar
from repair_ray.data.readers.webdataset import TarReader
from repair_ray.data.records import DataError, InlineImage, Item, Problem, Record, clean_captions

_SHARD = re.compile(r"^(?P<stem>(?:.*/)?\d+)(?P<kind>\.tar|\.parquet|_stats\.json)$")
SUCCESS = "success"
# With output_format=parquet the pictures are in a column of this name.
_FORMATS = ("jpg", "png", "webp")


def choose(files: list[str]) -> list[str]:
    """The files of shards: of one number, a table of its rows beside a tar or beside the statistics of its making."""
    kinds: dict[str, set[str]] = {}
    for file in files:
        if found := _SHARD.match(file):
            kinds.setdefault(found["stem"], set()).add(found["kind"])
    shards = {stem for stem, found in kinds.items() if ".parquet" in found and len(found) > 1}
    # A shard whose table is not there (yet) is still one of them.
    shards |= {stem for stem, found in kinds.items() if shards and ".tar" in found}
    return [file for file in files if _stem(file) in shards]


def detect(head: bytes) -> bool:
    return parquet.detect(head) or is_tar(head)


def read(path: str, files: list[str], options: ReadOptions) -> Iterator[Item]:
    """Records of the pictures that came, and a Problem for each row of the tables that failed.

    Such a Problem's reason is the row's status (failed_to_download, failed_to_resize), its detail the error and the
    URL. The image id is the file's name in the tar (000000012.jpg), whatever the pictures lie in. Other problems are
    those of `webdataset.read` and of `image_folder.read`.
    """
    tars = TarReader(path, [file for file in files if file.endswith(".tar")], options)
    loose = [file for file in files if _SHARD.match(file) is None]
    for file in files:
        if file.endswith(".tar"):
            yield from tars.read(file)
        elif file.endswith(".parquet"):
            yield from _table(file, options)
    tars.check_used(path)
    if loose:
        for item in image_folder.read(path, loose, options):
            if isinstance(item, Record):
                item.image_id = item.image_id.rpartition("/")[2]
            yield item


def _stem(file: str) -> str:
    """The shard that a file is of: 00000.tar, 00000.parquet, 00000_stats.json, or a file in the folder 00000."""
    found = _SHARD.match(file)
    return found["stem"] if found else file.rpartition("/")[0]


def _table(file: str, options: ReadOptions) -> Iterator[Item]:
    schema = parquet.SOURCE.schema(file)
    pictures = next((name for name in _FORMATS if name in schema.names and is_bytes(schema.field(name).type)), None)
    captions = options.caption_column or next((name for name in ("txt", "caption") if name in schema.names), None)
    for name in ("key", "status"):
        if name not in schema.names:
            raise DataError(f"{file} is not a table of img2dataset: no column {name!r}; found: {schema.names}")
    used = ["key", "status", "error_message", "url", *([pictures, captions] if pictures else [])]
    names = [name for name in dict.fromkeys(used) if name and name in schema.names]
    for index, row in enumerate(parquet.SOURCE.rows(file, names, options.batch_rows)):
        source = f"{file}:{index}"
        if row["status"] != SUCCESS:
            told = row.get("error_message") or "no error message"
            yield Problem(source, str(row["status"]), f"{row['key']}: {told} ({row.get('url')})")
        elif pictures:
            yield _record(row, pictures, captions, source)


def _record(row: dict, pictures: str, captions: str | None, source: str) -> Item:
    texts = clean_captions(row.get(captions)) if captions else []
    name = f"{row['key']}.{pictures}"
    if not texts:
        return Problem(source, "no_caption", f"{name} has no caption (column {captions})")
    if not row[pictures]:
        return Problem(source, "no_image", f"{name}: its column {pictures} is empty")
    return Record(name, InlineImage(row[pictures], name), texts, None, None, source)


READER = Reader(
    name="img2dataset", suffixes=(".tar", ".parquet"), detect=detect, read=read, chooses=choose, layout=True
)
