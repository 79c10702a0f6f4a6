"""Kinds, factors and roles of a world, against Megatron's rank arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_classes import megatron_groups

from prismcore.collect.roles import Roles
from prismcore.errors import CollectError

sizes = st.sampled_from([1, 2, 3, 4, 8])


@settings(max_examples=40, deadline=None)
@given(tp=sizes, pp=sizes, dp=sizes)
def test_the_factors_name_every_rank_once(tp, pp, dp):
    world = tp * pp * dp
    roles = Roles(megatron_groups(world, tp, pp), world, 8)
    assert int(np.prod(roles.factor_sizes(), dtype=int)) == world
    assert sorted(roles.factor_sizes()) == sorted(s for s in (tp, pp, dp) if s > 1)
    places = [roles.positions(rank) for rank in range(world)]
    assert len(set(places)) == world
    assert all(roles.rank_at(place) == rank for rank, place in enumerate(places))


def test_a_world_without_groups_counts_ranks():
    roles = Roles([], 16, 8)
    assert roles.factor_sizes() == [16]
    assert roles.positions(5) == (5,)


def test_groups_without_a_description_are_told_apart_by_order():
    rows = [("undefined", str(i), [2 * i, 2 * i + 1]) for i in range(4)]
    rows += [("undefined", str(4 + i), [i, i + 2, i + 4, i + 6]) for i in range(2)]
    roles = Roles(rows, 8, 8)
    assert roles.factor_sizes() == [2, 4]


def test_members_of_a_role_are_those_of_the_ranks_own_group():
    roles = Roles(megatron_groups(64, 2, 4), 64, 8)
    tensor = next(kind for kind in roles.kinds if kind.name.startswith("TENSOR"))
    name = f"{tensor.name}:{tensor.names[int(tensor.group_of[0])]}"
    role = roles.slot_role(0, name, [0, 1])
    _, identity, members = roles.slot_members(62, role)
    assert list(members) == [62, 63]
    assert identity != roles.slot_members(0, role)[1]


def test_a_pair_of_one_group_keeps_its_distance_for_other_ranks():
    roles = Roles([], 8, 8)
    role = roles.slot_role(2, "default_pg:0", [2, 3])  # to the next rank
    assert [int(r) for r in roles.slot_members(6, role)[2]] == [6, 7]
    assert [int(r) for r in roles.slot_members(7, role)[2]] == [0, 7]  # wraps; the lower is first
    assert (
        roles.slot_members(2, role)[1] == roles.slot_members(3, roles.slot_role(3, "default_pg:0", [2, 3]))[1]
    )


@pytest.mark.parametrize(
    ("name", "members", "words"),
    [("nobody:99", [0, 1], "no process group"), ("default_pg:0", [0, 1, 2], "3 members")],
)
def test_communicators_that_fit_no_group_are_named(name, members, words):
    with pytest.raises(CollectError, match=words):
        Roles([], 8, 8).slot_role(0, name, members)
