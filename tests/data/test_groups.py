"""Groups that share a key are one."""

from __future__ import annotations

from repair_ray.data.groups import joined_groups


def test_groups_join_through_keys_and_through_each_other() -> None:
    groups = ["a", "b", "b", "c", "d", "e"]
    keys = ["x", "x", "y", "y", None, None]
    found = joined_groups(groups, keys)
    # a and b by x, b and c by y; without a key an item stays by itself, and None joins nothing.
    assert len(set(found[:4])) == 1 and found[0] in groups[:4]
    assert found[4:] == ["d", "e"]
