"""Pictures in one folder a class, as image classification keeps them."""

from __future__ import annotations

from pathlib import Path

from repair_ray.data.records import DataError

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")


def read_class_folders(path: Path) -> dict[str, list[str]]:
    """`{class: [picture as class/name]}`, sorted; hidden files and folders are left out, an empty class stays a class.

    Raises:
        DataError: no folder, fewer than two classes, or no picture.
    """
    if not path.is_dir():
        raise DataError(f"there is no folder {path}; it must hold a folder of pictures for each class")
    classes = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    found = {
        folder.name: sorted(
            f"{folder.name}/{file.name}"
            for file in folder.iterdir()
            if file.suffix.lower() in SUFFIXES and not file.name.startswith(".")
        )
        for folder in classes
    }
    if len(found) < 2:
        raise DataError(f"{path} holds {len(found)} folders; at least two classes are needed")
    if not any(found.values()):
        raise DataError(f"the folders of {path} hold no picture ({', '.join(SUFFIXES)})")
    return found


def read_templates(path: Path) -> tuple[str, ...]:
    """One template a line, with `{}` for the class.

    Raises:
        DataError: unreadable, empty, or a line without `{}`; names it.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from None
    for number, line in enumerate(lines, start=1):
        if line.strip() and "{}" not in line:
            raise DataError(f"{path}, line {number}: {line.strip()!r} has no {{}} for the class")
    found = tuple(line.strip() for line in lines if line.strip())
    if not found:
        raise DataError(f"{path} holds no template")
    return found
