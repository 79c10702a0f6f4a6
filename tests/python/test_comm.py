import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismcore import comm
from prismcore.errors import GraphError, ProfileError
from prismcore.profiles.cluster import cluster_names, load_cluster

KINDS = [
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "all_to_all",
    "gather",
    "scatter",
]
PROFILES = {name: load_cluster(name) for name in cluster_names()}

profiles = st.sampled_from(sorted(PROFILES)).map(PROFILES.__getitem__)
kinds = st.sampled_from(KINDS)
sizes = st.integers(min_value=0, max_value=1 << 50)
memberships = st.builds(
    lambda start, stride, count: range(start, start + stride * count, stride),
    st.integers(min_value=0, max_value=8000),
    st.sampled_from([1, 2, 3, 4, 8, 16, 64]),
    st.integers(min_value=2, max_value=600),
)


@given(kind=kinds, nbytes=sizes, members=memberships, profile=profiles)
def test_the_choice_is_a_candidate_and_the_same_every_time(kind, nbytes, members, profile):
    first = comm.collective_cost(kind, nbytes, members, cluster=profile)
    assert first == comm.collective_cost(kind, nbytes, members, cluster=profile)
    assert first.duration_ns > 0
    found = comm.candidates(kind, nbytes, members, cluster=profile)
    assert first in found
    assert [cost.duration_ns for cost in found] == sorted(cost.duration_ns for cost in found)


@given(kind=kinds, small=sizes, more=sizes, members=memberships, profile=profiles)
def test_time_grows_with_bytes_within_an_algorithm_and_protocol(kind, small, more, members, profile):
    def by_name(nbytes: int) -> dict[tuple[str, str], int]:
        found = comm.candidates(kind, nbytes, members, cluster=profile)
        return {(cost.algorithm, cost.protocol): cost.duration_ns for cost in found}

    low, high = by_name(small), by_name(small + more)
    for key in low.keys() & high.keys():
        if kind == "all_reduce" and (
            key[0] == "tree" or (key[0] == "nvls_tree" and profile.compute_capability >= 100)
        ):
            continue  # NCCL's correction table is not monotone
        assert low[key] <= high[key], key


@given(kind=kinds, nbytes=sizes, member=st.integers(min_value=0, max_value=8191), profile=profiles)
def test_a_rank_alone_costs_nothing(kind, nbytes, member, profile):
    assert comm.collective_cost(kind, nbytes, [member], cluster=profile).duration_ns == 0
    assert comm.communicator_bytes([member], cluster=profile) == 0


@given(members=memberships, profile=profiles, seed=st.randoms(use_true_random=False))
def test_only_the_shape_counts_not_the_order(members, profile, seed):
    shuffled = list(members)
    seed.shuffle(shuffled)
    moved = [member + 8 * profile.gpus_per_node for member in members]
    costs = {
        comm.collective_cost("all_reduce", 1 << 24, who, cluster=profile)
        for who in (members, shuffled, moved)
    }
    assert len(costs) == 1


def oracle_ring(nbytes: int, ranks: int, nodes: int, channels: int, gbps: float) -> float:
    """us of a Simple ring all-reduce on sm80 nodes with an AMD host, written out independently."""
    steps = 2 * (ranks - 1)
    if nodes == 1:
        latency = 8.4 + steps * 3.4
    else:
        between = 2 * (nodes - 1)
        latency = 8.4 + (steps - between) * max(3.4, 3 * 2.0) + between * 14
        if nbytes // (2 * channels * ranks) >= 64:
            latency *= 1.4
    return latency + nbytes / (1000 * channels * gbps * ranks / steps)


@given(nbytes=st.integers(min_value=1, max_value=1 << 40), nodes=st.integers(min_value=2, max_value=64))
def test_ring_all_reduce_against_an_oracle(nbytes: int, nodes: int):
    found = comm.candidates("all_reduce", nbytes, range(8 * nodes), cluster=PROFILES["a100-8x"])
    ring = next(cost for cost in found if (cost.algorithm, cost.protocol) == ("ring", "simple"))
    expected = oracle_ring(nbytes, 8 * nodes, nodes, 8, 24.0)
    assert math.isclose(ring.duration_ns / 1000, expected, rel_tol=1e-9, abs_tol=1e-3)


def test_published_bus_bandwidths_on_one_node():
    """All-reduces of 16 GiB: 476 GB/s on H100 (nccl-tests#290), 475 on H200 (#272), 830 on B200
    (nccl#1807), 368.8 on H100 without NVLink multicast (nccl-tests#309)."""
    nbytes = 1 << 34

    def busbw(profile) -> float:
        cost = comm.collective_cost("all_reduce", nbytes, range(8), cluster=profile)
        return nbytes / cost.duration_ns * 14 / 8

    assert busbw(PROFILES["h100-8x"]) == pytest.approx(476, rel=0.01)
    assert busbw(PROFILES["h200-8x"]) == pytest.approx(475, rel=0.01)
    assert busbw(PROFILES["b200-8x"]) == pytest.approx(830, rel=0.01)
    without = load_cluster("h100-8x")
    without.nvls = False
    assert busbw(without) == pytest.approx(368.8, rel=0.03)


def test_small_and_large_all_reduces_choose_as_reported_on_h100():
    """One node of 8 H100: ring LL to 1 MiB, NVLS Simple from 4 MiB on (nccl-tests#309)."""
    small = comm.collective_cost("all_reduce", 1 << 13, range(8))
    large = comm.collective_cost("all_reduce", 1 << 30, range(8))
    assert (small.algorithm, small.protocol) == ("ring", "ll")
    assert (large.algorithm, large.protocol) == ("nvls", "simple")


@given(members=memberships, profile=profiles, channel=st.integers(min_value=0, max_value=63))
def test_rings_visit_everyone_and_trees_reach_one_root(members, profile, channel):
    core = profile.to_core()
    order = comm.ring_order(members, channel, cluster=core)
    assert order[0] == members[0]
    assert sorted(order) == list(members)
    parents = comm.tree_parents(members, channel, cluster=core)
    for rank in members:
        at, steps = rank, 0
        while (up := parents[at]) is not None:
            at, steps = up, steps + 1
            assert steps <= len(members)
    assert sum(up is None for up in parents.values()) == 1


@given(members=memberships, nbytes=st.integers(min_value=0, max_value=1 << 40), data=st.data())
def test_traffic_is_conserved(members, nbytes, data):
    root = data.draw(st.sampled_from(list(members)))
    core = PROFILES["h100-8x"].to_core()
    ranks = len(members)

    def total(kind: str, algorithm: str = "ring") -> int:
        edges = comm.traffic(kind, nbytes, members, algorithm=algorithm, root=root, cluster=core)
        assert all(edge.source in members and edge.target in members for edge in edges)
        assert len({(edge.source, edge.target) for edge in edges}) == len(edges)
        return sum(edge.nbytes for edge in edges)

    assert total("all_reduce") == total("all_reduce", "tree") == 2 * (ranks - 1) * nbytes
    assert total("all_gather") == total("reduce_scatter") == (ranks - 1) * nbytes
    assert total("broadcast") == total("reduce") == (ranks - 1) * nbytes


def test_structure_of_two_small_nodes():
    profile = load_cluster("h100-8x")
    profile.gpus_per_node = 2
    profile.multi_node.same_channels = True
    assert comm.ring_order([10, 11, 4, 5], cluster=profile) == [10, 11, 4, 5]
    assert comm.tree_parents([10, 11, 4, 5], cluster=profile) == {10: None, 11: 10, 4: 10, 5: 4}
    edges = comm.traffic("broadcast", 100, [10, 11, 4, 5], root=4, cluster=profile)
    assert sum(edge.nbytes for edge in edges) == 300
    assert all(edge.target != 4 for edge in edges)
    with pytest.raises(GraphError, match="found root 6"):
        comm.traffic("broadcast", 100, [10, 11, 4, 5], root=6, cluster=profile)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: comm.collective_cost("all_reduce", -1, range(8)),
            "nbytes -1 found, expected a whole",
        ),
        (lambda: comm.collective_cost("all_reduce", 1, []), "without members"),
        (lambda: comm.collective_cost("allreduce", 1, range(8)), "'allreduce'"),
        (lambda: comm.collective_cost("send", 1, range(8)), "expected a collective"),
        (lambda: comm.collective_cost("all_reduce", 1, range(8), dtype="int4"), "'int4'"),
        (lambda: comm.collective_cost("all_reduce", 1, range(8), reduction="xor"), "'xor'"),
        (lambda: comm.collective_cost("all_reduce", 2**63, range(8)), "nbytes 9223372036854775808 found"),
        (lambda: comm.collective_cost("all_reduce", 1, [0, 3, 3]), "rank 3 is named twice"),
        (lambda: comm.collective_cost("all_reduce", 1, [-1, 0]), "members: -1 found"),
        (lambda: comm.ring_order([0, 1], -1), "channel -1 found"),
        (lambda: comm.tree_parents([0, 2**32]), "members: 4294967296 found"),
        (lambda: comm.traffic("all_reduce", 1.5, [0, 1]), "nbytes 1.5 found"),
        (lambda: comm.p2p_cost(-5, same_node=True), "nbytes -5 found"),
        (lambda: comm.communicator_bytes([]), "without members"),
    ],
)
def test_bad_input_is_one_line(call, message):
    with pytest.raises(GraphError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_an_unknown_cluster_is_named():
    with pytest.raises(ProfileError, match="h100-8x"):
        comm.p2p_cost(1, same_node=True, cluster="dgx")
