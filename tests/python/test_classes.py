"""Class finding against synthetic worlds whose true classes are known."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prismcore.collect.classes import ClassFinder
from prismcore.collect.levels import Level
from prismcore.collect.likeness import Likeness, Record, compare
from prismcore.collect.roles import Roles


def megatron_groups(world: int, tp: int, pp: int) -> list[tuple[str, str, list[int]]]:
    """Groups as Megatron makes them: tensor fastest, then data, then pipeline."""
    dp = world // (tp * pp)
    rank = lambda t, d, p: t + tp * (d + dp * p)  # noqa: E731
    rows = []

    def add(description: str, groups: list[list[int]]) -> None:
        rows.extend((description, str(len(rows) + 1), group) for group in groups)

    all_t, all_d, all_p = range(tp), range(dp), range(pp)
    add("DATA_PARALLEL_GROUP", [[rank(t, d, p) for d in all_d] for p in all_p for t in all_t])
    add("MODEL_PARALLEL_GROUP", [[rank(t, d, p) for p in all_p for t in all_t] for d in all_d])
    add("TENSOR_MODEL_PARALLEL_GROUP", [[rank(t, d, p) for t in all_t] for p in all_p for d in all_d])
    add("PIPELINE_MODEL_PARALLEL_GROUP", [[rank(t, d, p) for p in all_p] for d in all_d for t in all_t])
    ends = sorted({0, pp - 1})
    add("EMBEDDING_GROUP", [[rank(t, d, p) for p in ends] for d in all_d for t in all_t])
    return rows


@dataclass
class Job:
    """A job whose programs are a known function of (tensor, data, pipeline) positions."""

    world: int
    tp: int
    pp: int
    sharded: bool

    @property
    def dp(self) -> int:
        return self.world // (self.tp * self.pp)

    def place(self, rank: int) -> tuple[int, int, int]:
        return rank % self.tp, rank // self.tp % self.dp, rank // (self.tp * self.dp)

    def truth(self, rank: int) -> tuple[int, ...]:
        """Equal for two ranks exactly where their programs are."""
        t, d, p = self.place(rank)
        return (min(t, 1), p, self.shard(d) if self.sharded else 0)

    def shard(self, d: int) -> int:
        return d if d in (0, self.dp - 1) or d % 5 == 2 else -1

    def record(self, rank: int) -> Record:
        first, stage, shard = self.truth(rank)
        blocks = [1000 * stage + i for i in range(40)]
        blocks[30] = 900_000 + 10 * stage + first  # the norm leaves duplicated parameters out
        if self.sharded:
            blocks[31] = 950_000 + 1000 * stage + shard
        communication = tuple(1000 * stage + i for i in range(40))
        return Record(
            roles="r",
            blocks=tuple(blocks),
            work=tuple(blocks),
            communication=communication,
            requested_bytes=stage,
        )


def find(job: Job, seed: int = 0) -> tuple[ClassFinder, list[int]]:
    roles = Roles(megatron_groups(job.world, job.tp, job.pp), job.world, 8)
    finder = ClassFinder(roles, roles.surroundings(), seed=seed)
    ran: list[int] = []
    while wanted := finder.next_ranks():
        assert not set(wanted) & set(ran)
        ran += wanted
        for rank in wanted:
            finder.add(rank, job.record(rank))
    return finder, ran


jobs = st.builds(
    lambda tp, pp, dp, sharded: Job(tp * pp * dp, tp, pp, sharded),
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 3, 4, 8]),
    dp=st.sampled_from([1, 2, 3, 8, 16, 24]),
    sharded=st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(jobs, st.integers(0, 3))
def test_every_rank_gets_a_program_with_the_communication_it_has(job: Job, seed: int):
    finder, ran = find(job, seed)
    covered = [rank for ranks, _, _ in finder.classes() for rank in ranks]
    assert sorted(covered) == list(range(job.world))
    for ranks, members_that_ran, like in finder.classes():
        assert like in members_that_ran
        assert set(members_that_ran) <= set(ran)
        for rank in ranks:
            assert compare(job.record(rank), job.record(like)) is not Likeness.DIFFERENT
            if not job.sharded and rank not in ran:
                assert job.truth(rank) == job.truth(like)


def test_plain_optimizer_at_64_runs_at_most_16_ranks_and_is_exact():
    job = Job(64, 2, 4, sharded=False)
    for seed in range(8):
        finder, ran = find(job, seed)
        assert len(ran) <= 16
        assert all(job.truth(r) == job.truth(like) for ranks, _, like in finder.classes() for r in ranks)


def test_sharded_optimizer_at_64_runs_at_most_32_ranks_and_every_data_position():
    job = Job(64, 2, 4, sharded=True)
    for seed in range(8):
        finder, ran = find(job, seed)
        assert len(ran) <= 32
        assert Level.SHARDED in finder.levels()
        for stage in range(4):
            seen = {job.place(r)[1] for r in ran if job.place(r)[2] == stage}
            assert seen >= {0, 7}
            assert len(seen) >= 5  # like cells of a stage look at different data positions


@pytest.mark.parametrize(("pp", "limit"), [(8, 60), (16, 108)])
def test_sharded_optimizer_at_8192_runs_few_ranks(pp: int, limit: int):
    job = Job(8192, 8, pp, sharded=True)
    finder, ran = find(job)
    assert len(ran) <= limit
    # The most frequent program of a cell is what its ranks take.
    likes = [job.place(like)[1] for _, _, like in finder.classes()]
    assert sum(job.shard(d) == -1 for d in likes) > len(likes) / 2


def test_a_rank_that_differs_where_no_probe_looked_splits_its_cell():
    """Every third tensor position sends something else: neither first, middle nor last shows it."""
    base = Job(8 * 4, 8, 1, sharded=False)

    def record(rank: int) -> Record:
        odd = rank % 8 in (2, 5)
        one = base.record(rank)
        return Record(
            roles="r",
            blocks=(*one.blocks, 7 + odd),
            work=(*one.work, 7),
            communication=(*one.communication, odd),
            requested_bytes=0,
        )

    roles = Roles(megatron_groups(32, 8, 1), 32, 8)
    caught = 0
    for seed in range(12):
        finder = ClassFinder(roles, roles.surroundings(), seed=seed)
        while wanted := finder.next_ranks():
            for rank in wanted:
                finder.add(rank, record(rank))
        if all(record(r) == record(like) for ranks, _, like in finder.classes() for r in ranks):
            caught += 1
    assert caught >= 2  # the confirming rank falls on 2 of the 5 positions that no probe looked at
    # (and any that falls elsewhere leaves the job as it is: ranks alike as far as was seen)


def test_ranks_that_lie_differently_over_nodes_are_never_taken_for_alike():
    # Groups of 6 consecutive ranks on nodes of 8: some cross a node border, some do not.
    groups = [("tp", str(i), list(range(6 * i, 6 * i + 6))) for i in range(8)]
    roles = Roles(groups, 48, 8)
    surroundings = roles.surroundings()
    assert surroundings[0] != surroundings[6]  # ranks 0-5: one node; 6-11: two
    record = Record(roles="r", blocks=(1,), work=(1,), communication=(1,), requested_bytes=0)
    finder = ClassFinder(roles, surroundings)
    while wanted := finder.next_ranks():
        for rank in wanted:
            finder.add(rank, record)
    for ranks, _, _ in finder.classes():
        assert len({surroundings[rank] for rank in ranks}) == 1


def test_what_only_the_first_and_the_last_rank_do_is_theirs_alone():
    job = Job(64, 2, 4, sharded=False)

    def record(rank: int) -> Record:
        one = job.record(rank)
        log = 1 if rank in (0, 63) else 0
        return Record(
            roles="r",
            blocks=(*one.blocks, log),
            work=(*one.work, log),
            communication=(*one.communication, 0),
            requested_bytes=one.requested_bytes,
        )

    roles = Roles(megatron_groups(64, 2, 4), 64, 8)
    finder = ClassFinder(roles, roles.surroundings())
    while wanted := finder.next_ranks():
        for rank in wanted:
            finder.add(rank, record(rank))
    assert len(finder.records) <= 16
    for ranks, ran, like in finder.classes():
        assert all(record(r) == record(like) for r in ranks if r not in ran)


def test_ranks_whose_memory_wavers_do_not_all_run():
    """Plain data parallelism where every rank gives a buffer back at a moment of its own."""

    def record(rank: int) -> Record:
        return Record(
            roles="r",
            blocks=(rank, 1, 2, 3),
            work=(0, 1, 2, 3),
            communication=(0, 1, 2, 3),
            requested_bytes=1000 + rank % 7,
        )

    roles = Roles([], 64, 8)
    finder = ClassFinder(roles, roles.surroundings())
    while wanted := finder.next_ranks():
        for rank in wanted:
            finder.add(rank, record(rank))
    assert finder.levels() == [Level.SHARDED]
    assert len(finder.records) <= 12


def test_a_block_more_is_a_difference():
    a = Record(roles="r", blocks=(1, 2), work=(1, 2), communication=(1, 1), requested_bytes=0)
    b = Record(roles="r", blocks=(1, 2, 2), work=(1, 2, 2), communication=(1, 1, 1), requested_bytes=0)
    assert compare(a, b) is Likeness.DIFFERENT
    assert compare(a, a) is Likeness.EQUAL
