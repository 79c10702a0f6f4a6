"""Rank lists as messages name them."""

from prismcore.rank_list import absent_words, format_absent, named_ranks


def test_absent_ranks_in_words():
    assert absent_words(format_absent([1], range(2)), "2", "trace") == "rank 0 (of 2) has no trace"
    assert absent_words(format_absent([1], range(3)), "3", "dump") == "ranks 0,2 (of 3) have no dump"
    assert absent_words(format_absent([3], range(4)), "4", "trace") == "ranks 0-2 (of 4) have no trace"


def test_named_ranks_are_cut():
    assert named_ranks([3]) == "rank 3"
    assert named_ranks([0, 2, 4, 5], most=2) == "ranks 0,2,..."
