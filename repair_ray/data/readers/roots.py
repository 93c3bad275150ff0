"""Where the pictures lie that a text or JSON file names, and which id each has."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Sequence

from repair_ray.data.files import FolderListing, is_remote, under_root
from repair_ray.data.records import ImageRef, Problem

# Names looked for in each folder near the file, and folders looked into.
SAMPLE = 1000
FOLDERS = 64


def picture_id(name: str) -> str:
    """The name as its source gives it, without "./"; the id of a picture, the same from every layout."""
    plain = not name or not ("./" in name or "//" in name or name.endswith(("/", "/.", "/..")))
    return name if plain or is_remote(name) else posixpath.normpath(name)


class Pictures:
    """Finds the pictures named by the files below `path`; one listing a folder, whatever the number of names."""

    def __init__(self, path: str, image_root: str | None) -> None:
        self.listing = FolderListing()
        self._path = path.rstrip("/")
        self._image_root = image_root

    def root(self, file: str, names: Sequence[str]) -> str:
        """The folder that the names in `file` start from.

        `data.image_root` where it is set. Else the first of these that holds the most of (a sample of) the names: the
        file's folder; folders in it, two deep; where the user named a folder further up, folders in those between;
        and beside the file's folder the one that COCO would have there: annotations/captions_train2017.json has
        train2017, or images/train2017.
        """
        if self._image_root:
            return self._image_root
        folder = file.rpartition("/")[0] or "."
        step = max(1, len(names) // SAMPLE)
        sample = [name for name in names[::step] if name and not name.startswith("/") and not is_remote(name)]
        best, most = folder, 0
        for candidate in self._candidates(folder, file.rpartition("/")[2]):
            held = sum(self._holds(candidate, name) for name in sample)
            if held > most:
                best, most = candidate, held
            if most == len(sample):
                break
        return best

    def find(self, root: str, name: str, source: str) -> tuple[str, ImageRef] | Problem:
        """The picture's id and place. Problems: no_image, path_escapes_root, missing_image."""
        if not name:
            return Problem(source, "no_image", "the picture's name is empty")
        uri = located(self.listing, root, name, source)
        if isinstance(uri, Problem):
            return uri
        given = picture_id(name)
        # An absolute name is told from the root, so that the id does not change with the machine.
        start = under_root(root, "x")[:-1]
        return given if uri != given else uri.removeprefix(start), ImageRef(uri)

    def _candidates(self, folder: str, file_name: str) -> Iterator[str]:
        yield folder
        yield from self._two_deep(folder)
        above = folder.rpartition("/")[0]
        while self._path and (above == self._path or above.startswith(self._path + "/")):
            yield from self._two_deep(above)
            above = above.rpartition("/")[0]
        parent = folder.rpartition("/")[0] if is_remote(folder) else os.path.dirname(os.path.abspath(folder))
        for beside in self._folders(parent) + self._folders(f"{parent.rstrip('/')}/images"):
            if beside.rpartition("/")[2] in file_name:
                yield beside

    def _two_deep(self, folder: str) -> list[str]:
        first = self._folders(folder)[:FOLDERS]
        return (first + [deeper for place in first for deeper in self._folders(place)])[:FOLDERS]

    def _folders(self, folder: str) -> list[str]:
        try:
            return self.listing.folders(folder)
        except OSError:  # not ours to look into
            return []

    def _holds(self, folder: str, name: str) -> bool:
        try:
            return self.listing.has(under_root(folder, name))
        except (ValueError, OSError):
            return False


def located(listing: FolderListing, root: str, name: str, source: str) -> str | Problem:
    """Where the picture of this name lies. Problems: path_escapes_root, missing_image."""
    try:
        uri = under_root(root, name)
    except ValueError as error:
        return Problem(source, "path_escapes_root", f"{error}; set data.image_root to a folder that holds it")
    return uri if listing.has(uri) else Problem(source, "missing_image", f"no file {uri}")
