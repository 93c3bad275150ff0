"""What is in the data twice: groups of equal pictures, training pictures that are evaluated on, and a table of both."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.config import Config, DataConfig
from repair_ray.data.duplicates import BITS, components, joined_groups, near_pairs, same_key_links
from repair_ray.engines.searcher import Searcher
from repair_ray.run import Recipe, Run, RunError
from repair_ray.stages.vectors import read_embeddings

DUPLICATES = "data/duplicates"
PIXELS, PERCEPTUAL, NAME, TEXT, EMBEDDING = "pixels", "perceptual", "name", "text", "embedding"
Link = tuple[int, int, int]


def settle_duplicates(images: pa.Table, data: DataConfig, trained: tuple[str, ...]) -> pa.Table:
    """Pictures of one split that are the same share a group, and so do their groups; overlap is settled as told.

    The same are pictures with the same pixels, in two splits also near duplicates of one name, and, with
    `data.near_same`, all near duplicates. `data.overlap` says what
    becomes of pictures of the splits `trained` that are in another split too.

    Raises:
        RunError: there are such pictures, and `data.overlap` is refuse.
    """
    splits = images["split"].to_pylist()
    links = _same_pixels(images) + (_near(images, data.near_bits) if data.near_same and data.near_bits else [])
    images = _grouped(images, splits, links)
    usable = pc.equal(images["status"], tables.OK).to_pylist()
    copies = [link for link in _same_name(images) if link[2] <= (data.near_bits or 0)]
    same = components(len(images), [link[:2] for link in links + copies])
    evaluated: dict[int, int] = {}
    for place, split in enumerate(splits):
        if usable[place] and split not in trained:
            evaluated.setdefault(int(same[place]), place)
    shared = {
        place: evaluated[int(same[place])]
        for place, split in enumerate(splits)
        if usable[place] and split in trained and int(same[place]) in evaluated
    }
    if not shared or data.overlap == "allow":
        return images
    if data.overlap == "refuse":
        raise RunError(_refusal(images, splits, shared))
    statuses, reasons = images["status"].to_pylist(), images["reason"].to_pylist()
    for place, other in shared.items():
        statuses[place], reasons[place] = tables.REJECTED, f"the same picture is in split {splits[other]}"
    return _with(_with(images, "status", statuses), "reason", reasons)


def find_duplicates(run: Run, config: Config, images: str, captions: str) -> None:
    """Make the `duplicates` table: for each item, another one that has the same pixels, nearly the same, or its text.

    Pictures of one name count where they are in two splits, captions where the other belongs to another group or
    split. The facts count rows by kind, way and splits.
    """
    near_bits = config.data.near_bits
    recipe = Recipe({"data": {"near_bits": near_bits}}, (images, captions))
    if run.ready(DUPLICATES, recipe):
        return
    start = time.monotonic()
    pictures = run.read(images)
    rows = list(_rows(pictures, "image_id", tables.IMAGE, PIXELS, _same_pixels(pictures)))
    if near_bits:
        rows += _rows(pictures, "image_id", tables.IMAGE, PERCEPTUAL, _near(pictures, near_bits))
    rows += _rows(pictures, "image_id", tables.IMAGE, NAME, _same_name(pictures))
    texts = run.read(captions)
    rows += _rows(texts, "caption_id", tables.CAPTION, TEXT, _same_text(texts))
    _commit(run, DUPLICATES, recipe, rows, time.monotonic() - start)


def find_near_embeddings(run: Run, config: Config, product: str, embeddings: str, trained: tuple[str, ...]) -> None:
    """Make a `duplicates` table of trained pictures whose nearest evaluated one reaches `data.near_cosine`."""
    cosine = config.data.near_cosine
    recipe = Recipe({"data": {"near_cosine": cosine}}, (embeddings,))
    if cosine is None or run.ready(product, recipe):
        return
    start = time.monotonic()
    evaluated = config.evaluation.split
    gallery = read_embeddings(run, embeddings, tables.IMAGE, evaluated)
    searcher = Searcher(gallery.features, model=embeddings, memory_bytes=config.mining.memory_mb * 2**20)
    rows = []
    for split in trained:
        queries = read_embeddings(run, embeddings, tables.IMAGE, split)
        scores, found = searcher.top_k(queries.features, 1)
        for query, score, place in zip(queries.ids, scores[:, 0].tolist(), found[:, 0].tolist(), strict=True):
            if score >= cosine:
                rows.append(_row(query, tables.IMAGE, split, gallery.ids[place], evaluated, EMBEDDING, 1 - score))
    _commit(run, product, recipe, rows, time.monotonic() - start)


def _commit(run: Run, product: str, recipe: Recipe, rows: list[dict[str, Any]], seconds: float) -> None:
    counts = Counter((row["kind"], row["way"], row["split"], row["other_split"]) for row in rows)
    facts = [
        {"kind": kind, "way": way, "split": split, "other_split": other, "count": count}
        for (kind, way, split, other), count in sorted(counts.items())
    ]
    table = tables.to_table(rows, tables.DUPLICATES.schema)
    run.commit(product, recipe, tables.DUPLICATES, table, seconds, duplicates=facts)


def _same_pixels(images: pa.Table) -> list[Link]:
    return [(*link, 0) for link in same_key_links(images["pixel_hash"].to_pylist())]


def _near(images: pa.Table, bits: int) -> list[Link]:
    """Links between pictures of different pixels whose perceptual hashes are equal or near."""
    hashes, pixels = images["perceptual_hash"].to_pylist(), images["pixel_hash"].to_pylist()
    first: dict[str, int] = {}
    for place, value in enumerate(hashes):
        if value is not None:
            first.setdefault(value, place)
    equal = [(a, b, 0) for a, b in same_key_links(hashes) if pixels[a] != pixels[b]]
    names = list(first)
    near = near_pairs(names, bits).tolist()
    return equal + [(first[names[a]], first[names[b]], distance) for a, b, distance in near]


def _same_name(images: pa.Table) -> list[Link]:
    """Links between pictures of one name in two splits, with the bits that differ (all without a hash)."""
    names, splits = images["name"].to_pylist(), images["split"].to_pylist()
    hashes, usable = images["perceptual_hash"].to_pylist(), pc.equal(images["status"], tables.OK).to_pylist()
    links = same_key_links([name if fits else None for name, fits in zip(names, usable, strict=True)])
    return [(a, b, _bits(hashes[a], hashes[b])) for a, b in links if splits[a] != splits[b]]


def _bits(one: str | None, two: str | None) -> int:
    return BITS if one is None or two is None else (int(one, 16) ^ int(two, 16)).bit_count()


def _same_text(captions: pa.Table) -> list[Link]:
    keys, groups, splits = (captions[name].to_pylist() for name in ("text_key", "group_id", "split"))
    links = same_key_links(keys)
    return [(a, b, 0) for a, b in links if (groups[a], splits[a]) != (groups[b], splits[b])]


def _rows(table: pa.Table, identity: str, kind: str, way: str, links: list[Link]) -> Iterator[dict[str, Any]]:
    """One row an item: its nearest other."""
    nearest: dict[int, tuple[int, int]] = {}
    for one, two, distance in links:
        for item, other in ((one, two), (two, one)):
            if item not in nearest or distance < nearest[item][0]:
                nearest[item] = (distance, other)
    ids, splits = table[identity].to_pylist(), table["split"].to_pylist()
    for item, (distance, other) in sorted(nearest.items()):
        yield _row(ids[item], kind, splits[item], ids[other], splits[other], way, distance)


def _row(item: str, kind: str, split: str, other: str, other_split: str, way: str, distance: float) -> dict[str, Any]:
    return {
        "duplicate_id": tables.row_id(item, way),
        "item_id": item,
        "kind": kind,
        "split": split,
        "other_id": other,
        "other_split": other_split,
        "way": way,
        "distance": distance,
        "status": tables.OK,
    }


def _grouped(images: pa.Table, splits: list[str], links: list[Link]) -> pa.Table:
    inside = [(one, two) for one, two, _ in links if splits[one] == splits[two]]
    return _with(images, "group_id", joined_groups(images["group_id"].to_pylist(), inside))


def _with(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    column = table.schema.get_field_index(name)
    field = table.schema.field(column)
    return table.set_column(column, field, pa.array(values, field.type))


def _refusal(images: pa.Table, splits: list[str], shared: dict[int, int]) -> str:
    place, other = next(iter(shared.items()))
    sources = images["source"].to_pylist()
    counts = Counter((splits[one], splits[two]) for one, two in shared.items())
    where = ", ".join(f"{count} of split {one} in split {two}" for (one, two), count in counts.most_common())
    return (
        f"pictures to train on are in other splits too: {where}; the first: {sources[place]} and {sources[other]}. "
        "Correct the files, or set data.overlap=drop to leave them out of training (data.overlap=allow trains on "
        "them), and start again with --redo images"
    )
