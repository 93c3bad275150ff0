"""Known positives and grids of a small training set that is worked out by hand."""

from __future__ import annotations

import numpy as np

from repair_ray.training.pairs import ABSENT, CorrectedPair, PairSet


def small_set(corrected: list[CorrectedPair] | None = None) -> PairSet:
    """Images 0..3 in groups 7, 7, 8, 9, and image 4, edited for caption 2 (group 8).

    Captions 0, 1 (image 0), 2 (image 1's, but see group), 3 (image 2), 4 (image 3), 5 edited for group 7, and 6, an
    edited caption whose text is that of caption 4. Captions 3 and 1 have equal texts.
    """
    return PairSet(
        image_group=np.array([7, 7, 8, 9, 8]),
        caption_image=np.array([0, 0, 1, 2, 3, ABSENT, ABSENT]),
        caption_group=np.array([7, 7, 7, 8, 9, 7, 8]),
        caption_text=np.array([0, 1, 2, 1, 3, 4, 3]),
        anchors=np.arange(5),
        corrected=corrected or [],
    )


def test_known_positives_by_hand() -> None:
    known = small_set().known(np.arange(5), np.arange(7))
    expected = np.array(
        [
            # 0  1  2  3  4  5  6
            [1, 1, 1, 1, 0, 1, 0],  # image 0, group 7; caption 3 has the text of caption 1
            [1, 1, 1, 1, 0, 1, 0],  # image 1, the same group
            [0, 1, 0, 1, 1, 0, 1],  # image 2, group 8; caption 4 has the text of caption 6, which describes group 8
            [0, 0, 0, 0, 1, 0, 1],  # image 3, group 9
            [0, 1, 0, 1, 1, 0, 1],  # image 4, edited, as image 2
        ],
        bool,
    )
    assert np.array_equal(known, expected)


def test_known_positives_in_any_order_and_with_repeats() -> None:
    pairs = small_set()
    whole = pairs.known(np.arange(5), np.arange(7))
    images, captions = np.array([4, 0, 0, 3]), np.array([6, 6, 2])
    assert np.array_equal(pairs.known(images, captions), whole[np.ix_(images, captions)])


def test_absent_items_are_never_known() -> None:
    known = small_set().known(np.array([ABSENT, 0, ABSENT]), np.array([0, ABSENT, 3]))
    assert np.array_equal(known, [[False] * 3, [True, False, True], [False] * 3])


def test_anchors_are_grouped_by_image() -> None:
    pairs = small_set()
    assert pairs.anchor_images.tolist() == [0, 1, 2, 3]
    assert pairs.captions_of(0).tolist() == [0, 1]
    assert pairs.captions_of(3).tolist() == [4]


def test_grid_holds_repairs_of_the_anchors_caption_and_image() -> None:
    of_caption = CorrectedPair("i2t", anchor=3, image=0, caption=5)
    of_image = CorrectedPair("t2i", anchor=2, image=4, caption=2)
    pairs = small_set([of_image, of_caption])
    assert pairs.grid_of(2, 3) == ([of_caption], [of_image])
    assert pairs.grid_of(0, 0) == ([], [])
    # An i2t anchor is a caption and a t2i anchor an image: the same number in the other list is something else.
    assert not pairs.has_repair(3, 2)
    assert pairs.has_repair(2, 3) and pairs.has_repair(2, 0) and pairs.has_repair(0, 3)


def test_fallback_serves_only_anchors_without_a_repair() -> None:
    repair = CorrectedPair("i2t", anchor=3, image=0, caption=5)
    other_repair = CorrectedPair("i2t", anchor=3, image=1, caption=5)
    beside_repair = CorrectedPair("i2t", anchor=3, image=3, caption=4, fallback=True)
    alone = CorrectedPair("i2t", anchor=4, image=0, caption=0, fallback=True)
    second_alone = CorrectedPair("i2t", anchor=4, image=2, caption=3, fallback=True)
    other_direction = CorrectedPair("t2i", anchor=2, image=0, caption=0, fallback=True)
    for order in (1, -1):
        listed = [beside_repair, alone, repair, other_direction, second_alone, other_repair][::order]
        pairs = small_set(listed)
        # A repair in one direction does not displace the fallback of the other.
        assert set(pairs.grid_of(2, 3)[0]) == {repair, other_repair}
        assert pairs.grid_of(2, 3)[1] == [other_direction]
        assert set(pairs.grid_of(3, 4)[0]) == {alone, second_alone}
