"""Where a person who labels a sheet can open its pictures."""

from __future__ import annotations

from pathlib import Path

from repair_ray.data.images import ImageProblem
from repair_ray.data.store import ImageStore


def picture_place(store: ImageStore, uri: str, offset: int | None, length: int | None, name: str, folder: Path) -> str:
    """The path of a picture that is a file; one inside a shard is copied to `folder` as `<name>.jpg`, beside the sheet.

    In brackets why there is none.
    """
    try:
        if offset is None:
            return store.resolve(uri)
        picture = store.rgb(uri, offset, length)
    except ImageProblem as problem:
        return f"({problem})"
    folder.mkdir(exist_ok=True)
    picture.save(folder / f"{name}.jpg", "JPEG", quality=95)
    return f"{folder.name}/{name}.jpg"  # as it is seen from the sheet, which may move with its folder
