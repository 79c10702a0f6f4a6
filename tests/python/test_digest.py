from graph_jobs import TIMES, Job, NamedOp, build, jobs, named
from hypothesis import assume, given
from hypothesis import strategies as st

from prismcore.graph import Graph, OpKind


@given(jobs(), st.integers(1, 5))
def test_numbering_does_not_count(job, seed):
    one, two = build(job), build(job, seed)
    assert one.digest() == two.digest()
    assert one.communication_digest() == two.communication_digest()
    assert one.rank_digests() == two.rank_digests()


def content(graph: Graph, *, communication_only: bool) -> object:
    """What a digest names, in plain Python."""
    names = {
        tuple(graph.communicator(i).members.tolist()): str(graph.communicator(i).members.tolist())
        for i in range(graph.num_communicators)
    }
    ranks = []
    for rank in graph.ranks.tolist():
        ops: list[NamedOp] = []
        for kind, name, fields in named(graph, rank, names):
            if communication_only and not OpKind(kind).is_communication:
                continue
            kept = dict(fields)
            kept["flags"] &= 0x4 if communication_only else ~0x3
            if communication_only:
                kept |= dict.fromkeys(TIMES, 0)
            ops.append((kind, name, tuple(kept.items())))
        ranks.append((rank, ops))
    return graph.world_size, ranks


@st.composite
def alike(draw: st.DrawFn) -> tuple[Job, Job]:
    """Two jobs that differ in little or nothing."""
    job = draw(jobs())
    other = Job(job.world_size, dict(job.communicators), {r: list(ops) for r, ops in job.ranks.items()})
    assume(job.ranks)
    rank = draw(st.sampled_from(sorted(job.ranks)))
    ops = other.ranks[rank]
    if not ops:
        return job, other
    at = draw(st.integers(0, len(ops) - 1))
    kind, name, fields = ops[at]
    key = draw(st.sampled_from(["none", "flags", "duration_ns", "bytes", "host_ns", "stream", "tag", "name"]))
    if key == "flags":
        fields = tuple((k, v ^ 1 if k == "flags" else v) for k, v in fields)  # the provenance
    elif key == "name":
        mine = [n for n, members in job.communicators.items() if len(members) >= 2 and rank in members]
        if OpKind(kind).is_communication and mine and dict(fields)["peer"] < 2:
            name = draw(st.sampled_from(mine))
    elif key != "none":
        fields = tuple(sorted((dict(fields) | {key: 1}).items()))
    ops[at] = (kind, name, fields)
    return job, other


@given(alike(), st.integers(0, 3))
def test_digests_are_equal_exactly_when_contents_are(pair, seed):
    one, two = build(pair[0]), build(pair[1], seed)
    for communication_only in (False, True):
        same = content(one, communication_only=communication_only) == content(
            two, communication_only=communication_only
        )
        digests = [g.communication_digest() if communication_only else g.digest() for g in (one, two)]
        assert (digests[0] == digests[1]) == same
        of_ranks = [g.rank_digests(communication_only=communication_only) for g in (one, two)]
        assert (of_ranks[0] == of_ranks[1]) == same
