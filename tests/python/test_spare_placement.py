import re
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from prismcore.errors import SpareError
from prismcore.spare import placement as places

LENGTHS = [0, 1, 3, 6, 11, 17, 25, 34, 44, 55, 72, 85, 106, 127, 151, 177, 199, 216, 246, 283, 333, 356]
LENGTHS += [372, 425, 480, 492, 553, 585]  # the shortest rulers of 1 to 28 marks, as published


def most_shared(stacks):
    """The most types that two groups share."""
    sets = [set(map(int, stack)) for stack in stacks]
    return max((len(a & b) for a, b in combinations(sets, 2)), default=0)


def is_placement(placement, groups, redundancy, *, first=True):
    stacks = placement.stacks()
    assert stacks.shape == (groups, redundancy)
    assert all(len(set(stack)) == redundancy for stack in stacks.tolist())
    assert Counter(stacks.ravel().tolist()) == dict.fromkeys(range(groups), redundancy)
    if first:
        assert sorted(stacks[:, 0]) == list(range(groups))
    hosted = {(int(h), t) for t, hosts in enumerate(placement.hosts()) for h in hosts}
    assert hosted == {(g, int(t)) for g, stack in enumerate(stacks) for t in stack}


@pytest.mark.parametrize("marks", range(1, 29))
def test_shortest_rulers(marks):
    ruler = places.golomb_ruler(marks)
    differences = [b - a for a, b in combinations(ruler, 2)]
    assert ruler == sorted(ruler)
    assert (len(ruler), ruler[0], ruler[-1]) == (marks, 0, LENGTHS[marks - 1])
    assert len(set(differences)) == len(differences)


@pytest.mark.parametrize("marks", [29, 30, 33, 48, 64, 100])
def test_constructed_rulers(marks):
    ruler = places.golomb_ruler(marks)
    differences = [b - a for a, b in combinations(ruler, 2)]
    assert len(ruler) == marks
    assert ruler[0] == 0
    assert len(set(differences)) == len(differences)
    assert ruler[-1] < marks * marks
    assert places.groups_needed(marks) == 2 * ruler[-1] + 1


@pytest.mark.parametrize("redundancy", [2, 3, 4, 5, 6, 7, 8])
def test_golomb_around_the_limit(redundancy):
    """Two types share at most one group exactly on the groups that are accepted; 2 x length + 1 is the
    first from which on all are."""
    length = LENGTHS[redundancy - 1]
    ruler = places.golomb_ruler(redundancy)
    for groups in range(redundancy, 2 * length + 12):
        shifted = [[(w + mark) % groups for mark in ruler] for w in range(groups)]
        fits = all(len(set(s)) == redundancy for s in shifted) and most_shared(shifted) <= 1
        if groups >= 2 * length + 1:
            assert fits
        if groups == 2 * length:
            assert not fits
        try:
            placement = places.golomb(groups, redundancy)
        except SpareError:
            assert not fits
            assert places.largest_redundancy(groups) != redundancy
            continue
        assert fits or groups in (
            redundancy**2 - redundancy + 1,
            redundancy**2 - 1,
            redundancy * (redundancy + 1),
        )
        is_placement(placement, groups, redundancy)
        assert placement.max_shared == most_shared(placement.stacks()) <= 1


def test_the_papers_sweeps_fit():
    assert [places.largest_redundancy(n) for n in (200, 600, 1000)] == [12, 20, 26]
    for groups, redundancy in [(200, 12), (600, 20), (1000, 26), (2000, 31)]:
        assert places.golomb(groups, redundancy).max_shared == 1


@pytest.mark.parametrize(
    ("groups", "redundancy"), [(7, 3), (13, 4), (31, 6), (183, 14), (120, 11), (110, 10)]
)
def test_groups_of_a_whole_construction_hold_more(groups, redundancy):
    """Singer: q^2 + q + 1 groups, q + 1 marks; Bose: q^2 - 1, q; Ruzsa: q^2 - q, q - 1."""
    placement = places.golomb(groups, redundancy)
    is_placement(placement, groups, redundancy)
    assert placement.max_shared == 1


def test_a_ruler_that_does_not_fit_says_what_would():
    with pytest.raises(SpareError) as caught:
        places.golomb(200, 13)
    message = str(caught.value)
    assert "redundancy 13 on 200 groups" in message
    assert "213 groups or more" in message
    assert "hold redundancy 12" in message


@given(groups=st.integers(1, 60), data=st.data(), seed=st.integers(0, 1 << 63))
def test_comparisons(groups, data, seed):
    redundancy = data.draw(st.integers(1, groups))
    drawn = places.random(groups, redundancy, seed=seed)
    is_placement(drawn, groups, redundancy)
    assert (drawn.stacks() == places.random(groups, redundancy, seed=seed).stacks()).all()
    around = places.cyclic(groups, redundancy)
    is_placement(around, groups, redundancy)
    assert around.max_shared == most_shared(around.stacks())
    if groups % redundancy == 0:
        blocks = places.replication(groups, redundancy)
        is_placement(blocks, groups, redundancy)
        assert {frozenset(s) for s in blocks.stacks().tolist()} == {
            frozenset(range(b, b + redundancy)) for b in range(0, groups, redundancy)
        }
    assert (places.custom(drawn.stacks()).hosts() == drawn.hosts()).all()


@given(groups=st.integers(1, 400), redundancy=st.integers(1, 12))
def test_spread_shares_one_type_or_says_what_fits(groups, redundancy):
    assume(redundancy <= groups)
    try:
        placed = places.spread(groups, redundancy)
    except SpareError as error:
        most = int(re.search(r"expected at most (\d+),", str(error))[1])
        assert 1 <= most < redundancy
        placed, redundancy = places.spread(groups, most), most
    is_placement(placed, groups, redundancy)
    assert most_shared(placed.stacks()) == placed.max_shared <= 1
    assert (placed.stacks() == places.spread(groups, redundancy).stacks()).all()


def test_spread_lies_all_over_the_circle():
    marks = places.spread(9375, 20).stacks()[0]
    assert np.diff([*marks, 9375]).max() < 9375 // 4
    assert places.golomb(9375, 20).stacks()[0].max() == 283


def test_random_is_mixed_and_follows_the_seed():
    first, second = (places.random(300, 6, seed=s).stacks() for s in (1, 2))
    assert (first != second).mean() > 0.9
    assert places.random(300, 6).max_shared <= 4
    shifts = (first - first[:, :1]) % 300
    assert len(np.unique(shifts[:, 1])) > 150  # a cyclic placement has one


domain_lists = st.lists(st.integers(1, 12), min_size=1, max_size=14).flatmap(
    lambda sizes: st.permutations([name for name, size in enumerate(sizes) for _ in range(size)])
)


@settings(max_examples=200, deadline=None)
@given(domains=domain_lists, data=st.data())
def test_domains_reach_the_bound_always(domains, data):
    """Uneven, shuffled racks: ceil(s r / N) hosts of a type in a rack of s groups, never more."""
    groups = len(domains)
    redundancy = data.draw(st.integers(1, groups))
    placement = places.domains(redundancy, domains)
    is_placement(placement, groups, redundancy)
    largest = max(Counter(domains).values())
    bound = -(-largest * redundancy // groups)
    worst = max(max(Counter(domains[h] for h in hosts).values()) for hosts in placement.hosts())
    assert worst == bound == placement.max_hosts_in_domain(domains)
    assert bound == places.fewest_hosts_in_domain(redundancy, domains)
    assert (placement.stacks() == places.domains(redundancy, domains).stacks()).all()


@pytest.mark.parametrize(
    ("groups", "rack", "redundancy", "shared"),
    [(600, 8, 9, 1), (1000, 16, 9, 1), (200, 4, 9, 1), (9375, 8, 20, 1), (600, 4, 20, 1), (600, 8, 16, 1)],
)
def test_racks_cost_no_sharing_in_fleets(groups, rack, redundancy, shared):
    domains = np.arange(groups) // rack
    placement = places.domains(redundancy, domains)
    assert placement.max_hosts_in_domain(domains) == 1
    assert placement.max_shared == shared
    assert places.golomb(groups, redundancy).max_hosts_in_domain(domains) > 1


def test_uneven_racks():
    domains = np.repeat(np.arange(70), np.resize([4, 16, 8, 7], 70))
    placement = places.domains(9, domains)
    assert placement.max_hosts_in_domain(domains) == 1
    assert placement.max_shared == 1


def test_too_large_a_rack_reaches_the_best_there_is():
    domains = [0] * 40 + list(range(1, 21))
    placement = places.domains(6, domains)
    assert placement.max_hosts_in_domain(domains) == 4  # 40 of 60 groups host 4 of 6 copies at least
    assert places.fewest_hosts_in_domain(6, domains) == 4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: places.golomb(0, 1), "found 0 groups"),
        (lambda: places.golomb(5, 6), "redundancy 6 on 5 groups, expected 1 to 5"),
        (lambda: places.cyclic(5, 0), "redundancy 0 on 5 groups"),
        (lambda: places.cyclic(-5, 1), "found -5 groups"),
        (lambda: places.replication(10, 3), "redundancy 3 on 10 groups, expected groups in .* 9 or 12"),
        (lambda: places.random(5, 2, seed=-1), "seed"),
        (lambda: places.cyclic(1 << 20, 1 << 20), "2\\^28"),
        (lambda: places.cyclic(1 << 40, 1), "1099511627776 found"),
        (lambda: places.cyclic(2.5, 1), "2.5 found, expected a whole number"),
        (lambda: places.golomb_ruler(513), "found 513 marks"),
        (lambda: places.golomb_ruler(0), "found 0 marks"),
        (lambda: places.domains(2, []), "found 0 groups"),
        (lambda: places.domains(3, [0, 1]), "redundancy 3 on 2 groups"),
        (lambda: places.domains(1, [0.5]), "row of integers"),
        (lambda: places.custom([]), "found stacks of no types"),
        (lambda: places.custom([[0], [0, 1]]), "found stacks of \\[1, 2\\]"),
        (lambda: places.custom([[0, 1], [1, 2]]), "group 1 hosts type 2"),
        (lambda: places.custom([[0, 0], [1, 1]]), "group 0 hosts type 0 twice"),
        (lambda: places.custom([[0, 1], [0, 1], [0, 2]]), "type 0 has 3 hosts, expected 2"),
        (lambda: places.golomb(7, 2).max_hosts_in_domain([0]), "domains of 1 groups, expected 7"),
    ],
)
def test_bad_input_is_one_line(call, message):
    with pytest.raises(SpareError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_one_group_and_no_redundancy():
    assert places.golomb(1, 1).stacks().tolist() == [[0]]
    assert places.golomb(4, 1).stacks().tolist() == [[0], [1], [2], [3]]
    assert places.domains(1, [5]).stacks().tolist() == [[0]]
    assert places.cyclic(3, 3).max_shared == 3
    assert places.replication(4, 4).max_shared == 4


def test_largest_redundancy_of_the_most_groups():
    assert places.largest_redundancy(2**31 - 1) == 512
