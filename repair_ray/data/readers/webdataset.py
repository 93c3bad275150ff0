"""WebDataset: tars whose members of one name, up to its first dot, are one sample. Read in place, never unpacked."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from repair_ray.data.files import filesystem, is_remote, root_of
from repair_ray.data.readers.annotations import MAX_TEXT, PICTURES, Annotations
from repair_ray.data.readers.base import Reader, ReadOptions
from repair_ray.data.readers.tar_headers import Member, TarHeaders, TarProblem, is_compressed_tar, is_tar
from repair_ray.data.records import ImageRef, Item, Problem, Record, canonical_split

# Both as in the webdataset package: a key ends at the first dot of the name after the last slash.
_KEY = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$")
_META = re.compile(r"__[^/]*__($|/)")
# TripletCLIP's tars, in which .neg_image and .neg_caption are the hard negatives.
_TRIPLET = "image"


@dataclass
class Sample:
    """Consecutive members with one key, by lower-cased suffix; `texts` holds the contents of those that are read."""

    key: str
    members: dict[str, Member] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)


def choose(files: list[str]) -> list[str]:
    """The tars; compressed ones where there is nothing else, so that the reader can say what is wrong with them."""
    plain = [file for file in files if file.lower().endswith(".tar")]
    return plain or (files if all(file.lower().endswith((".tar.gz", ".tgz")) for file in files) else [])


def detect(head: bytes) -> bool:
    return is_tar(head) or is_compressed_tar(head)


def read(path: str, files: list[str], options: ReadOptions) -> Iterator[Item]:
    """One record a sample, its picture a byte range of the tar.

    Members are grouped as the webdataset package does it. Within a group, a picture whose suffix has dots
    (a.v2.jpg, key "a") goes with the texts of the same full name (a.v2.txt). The image id is the member's name where
    it comes for the first time; in a further tar it is tar/member. A .txt is one caption, or one a line where a
    dataset_type.txt beside the tar or above it says "retrieval" (CLIP_benchmark). `data.image_column` names a suffix,
    other columns are those of `Annotations`.

    Problems: no_image, no_caption, repeated_id, not_utf8, bad_json, too_large, a link, and truncated or damaged_tar,
    which end a tar. Raises DataError for a compressed tar.
    """
    reader = TarReader(path, files, options)
    for file in files:
        yield from reader.read(file)
    reader.check_used(path)


class TarReader:
    """Reads the tars of one data set; keeps its image ids apart."""

    def __init__(self, path: str, files: list[str], options: ReadOptions) -> None:
        self._folder = root_of(path, files)
        self._options = options
        self._annotations = Annotations(options)
        self._ids: set[str] = set()
        self._lines: dict[str, bool] = {}

    def read(self, file: str) -> Iterator[Item]:
        """Records and problems of one tar."""
        lines = self._one_caption_a_line(posixpath.dirname(file))
        names: set[str] = set()
        with TarHeaders(file) as tar:
            for index, found in enumerate(self.samples(tar)):
                source = f"{file}:{index}"
                if isinstance(found, TarProblem):
                    yield Problem(source, found.reason, f"{found.detail}; what came before it is used")
                    return
                yield from self._items(found, file, source, names, lines)

    def check_used(self, path: str) -> None:
        """Raises DataError for a setting that named nothing in any tar."""
        self._annotations.check_used(path)

    def samples(self, tar: TarHeaders) -> Iterator[Sample | TarProblem]:
        """Groups of members; what is wrong with the tar comes last, since it ends there."""
        sample: Sample | None = None
        problem: TarProblem | None = None
        members = iter(tar)
        while True:
            try:
                member = next(members, None)
            except TarProblem as error:
                member, problem = None, error
            if member is None:
                break
            named = _key(member.name)
            if named is None:
                continue
            key, suffix = named
            # The package stops at a suffix that comes twice; a second sample is what is told of it here.
            if sample is None or sample.key != key or suffix in sample.members:
                if sample is not None:
                    yield sample
                sample = Sample(key)
            sample.members[suffix] = member
            if member.kind == "file" and member.length <= MAX_TEXT and self._annotations.wanted(_last(suffix)):
                sample.texts[suffix] = tar.content(member)
        if sample is not None:
            yield sample
        if problem is not None:
            yield problem

    def _items(self, sample: Sample, file: str, source: str, names: set[str], lines: bool) -> Iterator[Item]:
        pictures = self._pictures(sample)
        if not pictures:
            there = ", ".join(f".{suffix}" for suffix in sample.members)
            hint = "members of one sample must follow each other (tar --sort=name)"
            yield Problem(source, "no_image", f"sample {sample.key!r} has only {there}; {hint}")
        for suffix, lead in pictures:
            yield self._item(sample, suffix, lead, file, source, names, lines)

    def _pictures(self, sample: Sample) -> list[tuple[str, str]]:
        """Suffixes of a sample's pictures, each with what its texts' suffixes start with ("", or "v2.")."""
        asked = self._options.image_column
        if asked or _TRIPLET in sample.members:
            suffix = (asked or _TRIPLET).lower().lstrip(".")
            return [(suffix, "")] if suffix in sample.members else []
        found: dict[str, str] = {}
        for suffix in sorted(sample.members, key=_preference):
            if _last(suffix) in PICTURES:
                found.setdefault(_lead(suffix), suffix)
        with_text = {_lead(suffix) for suffix in sample.members if self._annotations.wanted(_last(suffix))}
        if len(found) == 1:  # a.v2.jpg may go with a.txt: one sample to webdataset
            lead, suffix = next(iter(found.items()))
            return [(suffix, lead if lead in with_text else "")]
        # Beside a.jpg, a.mask.png is a part of its sample; among a.v1.jpg and a.v2.jpg each is a picture.
        return [(suffix, lead) for lead, suffix in found.items() if lead in with_text or lead == "" or "" not in found]

    def _item(
        self, sample: Sample, suffix: str, lead: str, file: str, source: str, names: set[str], lines: bool
    ) -> Item:
        member = sample.members[suffix]
        name = member.name.removeprefix("./")
        if member.kind != "file":
            return Problem(source, member.kind, f"{name} is no plain file in the tar; tar it with --hard-dereference")
        beside = {other[len(lead) :]: part for other, part in sample.members.items() if other.startswith(lead)}
        texts = {
            other: sample.texts[lead + other] for other in beside if lead + other in sample.texts and "." not in other
        }
        large = next((o for o in beside if self._annotations.wanted(o) and beside[o].length > MAX_TEXT), None)
        if large is not None:
            return Problem(source, "too_large", f"the .{large} of {name} has {beside[large].length} bytes")
        annotation = self._annotations.read(texts, source, name, lines)
        if isinstance(annotation, Problem):
            return annotation
        image_id = annotation.image_id or self._image_id(name, file, names)
        names.add(name)
        if image_id is None or image_id in self._ids:
            what = image_id or name
            return Problem(source, "repeated_id", f"{what} already came; only the first is used")
        self._ids.add(image_id)
        uri = file if is_remote(file) else os.path.abspath(file)
        split = annotation.split or _split_of(name)
        return Record(
            image_id,
            ImageRef(uri, member.offset, member.length),
            annotation.captions,
            split,
            annotation.group,
            source,
        )

    def _image_id(self, name: str, file: str, names: set[str]) -> str | None:
        """The member's name, with the tar's before it where another tar had it; None where this tar had it."""
        if name in names:
            return None
        if name not in self._ids:
            return name
        return f"{file.removeprefix(self._folder)}/{name}"

    def _one_caption_a_line(self, folder: str) -> bool:
        if folder not in self._lines:
            places = [folder, posixpath.dirname(folder)] if folder else ["."]
            self._lines[folder] = any(_text(f"{place}/dataset_type.txt") == "retrieval" for place in places)
        return self._lines[folder]


def _key(name: str) -> tuple[str, str] | None:
    """Key and lower-cased suffix; None for what is no part of a sample (without a dot, hidden, or __meta__)."""
    found = _KEY.match(name)
    if found is None or _META.match(name) or posixpath.basename(name).startswith("."):
        return None
    return found[1], found[2].lower()


def _last(suffix: str) -> str:
    return suffix.rpartition(".")[2]


def _lead(suffix: str) -> str:
    return suffix[: len(suffix) - len(_last(suffix))]


def _preference(suffix: str) -> int:
    last = _last(suffix)
    return PICTURES.index(last) if last in PICTURES else len(PICTURES)


def _split_of(name: str) -> str | None:
    """The split that a folder inside the tar is named after."""
    folders = posixpath.dirname(name).split("/")
    known = [split for folder in folders if (split := canonical_split(folder)) in ("train", "validation", "test")]
    return known[-1] if known else None


def _text(file: str) -> str:
    where, inner = filesystem(file)
    try:
        with where.open_input_file(inner) as stream:
            return bytes(stream.read(100)).decode("utf-8", "replace").strip().lower()
    except FileNotFoundError:
        return ""


READER = Reader(name="webdataset", suffixes=(".tar",), detect=detect, read=read, chooses=choose, layout=True)
