"""Groups of items that show the same thing, and what joins them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def joined_groups(groups: Sequence[str], keys: Sequence[Hashable | None]) -> list[str]:
    """The group of each item once groups that share a key (such as a pixel hash) are one; None is no key.

    A joined group has the name of one of those in it, which depends on the order of the items alone.
    """
    parent: dict[str, str] = {}

    def root(group: str) -> str:
        while parent.setdefault(group, group) != group:
            group = parent[group]
        return group

    first: dict[Hashable, str] = {}
    for group, key in zip(groups, keys, strict=True):
        if key is not None:
            other = first.setdefault(key, group)
            parent[root(group)] = root(other)
    return [root(group) for group in groups]
