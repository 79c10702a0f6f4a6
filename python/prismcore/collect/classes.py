"""Finds the ranks that are alike by running as few as possible.

Rank 0 and the last rank always run and stand for themselves alone: programs like to log there. (So do
all ranks of a world of eight or less.)
Positions in the factors of the world (:mod:`prismcore.collect.roles`) name a rank. For each factor it is
probed, beside rank 0, whether its position matters and how: not at all; only first or last against
the others; each position (pipeline stages); or only in a few blocks whose communication is equal
(*sharded*: an optimizer that splits its state over the factor). The product of what matters gives
*cells*. One rank of each cell runs, then others, chosen by a seeded generator, confirm it; a cell whose
ranks differ in communication is split along the factor that made the difference. In a cell whose ranks
differ in few blocks alone, the ranks that do not run take the program nearest to all that ran, and the
spread among those that ran is reported.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Protocol

from prismcore.collect.levels import FactorLevel, Level
from prismcore.collect.likeness import Likeness, Record, compare

__all__ = ["ClassFinder", "World"]

_SMALL_WORLD = 8
_CONFIRMATIONS = 3
_MOST_RANKS = 48


class World(Protocol):
    """What the finder must know of a world; :class:`prismcore.collect.roles.Roles` is one."""

    @property
    def world_size(self) -> int: ...
    def factor_sizes(self) -> Sequence[int]: ...
    def positions(self, rank: int) -> tuple[int, ...]: ...
    def rank_at(self, positions: Sequence[int]) -> int | None: ...


class ClassFinder:
    """Asks for ranks to run until every rank of the world has a class.

    Use: run what :meth:`next_ranks` names and give each result to :meth:`add`, until it names none.
    """

    def __init__(self, world: World, surroundings: Sequence[Hashable], *, seed: int = 0) -> None:
        self._world = world
        self._surroundings = surroundings
        self._random = random.Random(seed)
        self._factors = [FactorLevel(size) for size in world.factor_sizes()]
        small = world.world_size <= _SMALL_WORLD
        self._alone = set(range(world.world_size)) if small else {0, world.world_size - 1}
        self._records: dict[int, Record] = {}
        self._probed = False
        self._forced: set[int] = set()
        self._confirmed: set[int] = set()
        self.confirming: set[int] = set()
        """Of the ranks last asked for, those that confirm a cell of which one ran already."""
        self._cells: dict[Hashable, list[int]] = {}
        self._order = list(range(world.world_size))
        self._random.shuffle(self._order)

    @property
    def records(self) -> dict[int, Record]:
        return self._records

    def levels(self) -> list[Level]:
        return [factor.level for factor in self._factors]

    def add(self, rank: int, record: Record) -> None:
        self._records[rank] = record

    def next_ranks(self) -> list[int]:
        """Ranks to run now; empty: every rank of the world has a class."""
        self.confirming = set()
        if self._missing(self._alone):
            return self._missing(self._alone)
        if not self._probed:
            wanted = self._missing(self._probe_ranks())
            if wanted:
                return wanted
            self._judge_factors()
            wanted = self._missing(self._probe_ranks())  # a factor may want a closer look
            if wanted:
                return wanted
            self._probed = True
        while True:
            self._cells = self._find_cells()
            wanted = self._missing(self._plan())
            if wanted:
                return wanted
            if not self._split():
                return []

    def cell_of(self, rank: int) -> Hashable:
        factors = zip(self._factors, self._world.positions(rank), strict=True)
        values = tuple(factor.value(position) for factor, position in factors)
        return (values, self._surroundings[rank], rank if rank in self._alone else None)

    def classes(self) -> list[tuple[list[int], list[int], int]]:
        """Per cell: its ranks, those of them that ran, and the one whose program the others take."""
        out = []
        for ranks in self._find_cells().values():
            ran = [rank for rank in ranks if rank in self._records]
            out.append((ranks, ran, self._nearest(ran)))
        return out

    def _missing(self, ranks: Iterable[int]) -> list[int]:
        return [rank for rank in dict.fromkeys(ranks) if rank not in self._records]

    def _base(self, factor: int) -> int:
        """Where a factor is probed: beside rank 0, at the second position of the largest other."""
        others = [i for i in range(len(self._factors)) if i != factor]
        largest = max(others, key=lambda i: self._factors[i].size, default=None)
        base = self._world.rank_at([int(i == largest) for i in range(len(self._factors))])
        return base or 0

    def _probe(self, factor: int, position: int, base: int) -> int | None:
        positions = list(self._world.positions(base))
        positions[factor] = position
        rank = self._world.rank_at(positions)
        return None if rank in self._alone else rank

    def _probe_ranks(self) -> list[int]:
        found = (
            self._probe(i, p, self._base(i))
            for i, factor in enumerate(self._factors)
            for p in factor.probes()
        )
        return [rank for rank in found if rank is not None]

    def _judge_factors(self) -> None:
        for i, factor in enumerate(self._factors):
            records = {}
            for position in factor.probes():
                rank = self._probe(i, position, self._base(i))
                if rank is not None:
                    records[position] = self._records[rank]
            factor.judge(records)

    def _find_cells(self) -> dict[Hashable, list[int]]:
        cells: dict[Hashable, list[int]] = defaultdict(list)
        for rank in range(self._world.world_size):
            cells[self.cell_of(rank)].append(rank)
        return dict(cells)

    def _plan(self) -> list[int]:
        """One rank a cell; then, cell by cell, ranks that confirm, as the allowance permits.

        Up to three more where ranks of a cell are taken to be equal; three to eight in all where they
        are known to differ.
        """
        wanted = list(self._forced)
        self.confirming = set()
        ran = {cell: [r for r in ranks if r in self._records] for cell, ranks in self._cells.items()}
        for cell in self._cells:
            if not ran[cell]:
                ran[cell] = self._order_in(cell)[:1]
                wanted += ran[cell]
        if self._missing(wanted):
            return wanted
        sharded = any(factor.level is Level.SHARDED for factor in self._factors)
        if sharded:
            each = self._ranks_a_cell(ran)
            for cell, ranks in self._cells.items():
                lacking = min(each, len(ranks)) - len(ran[cell])
                for rank in self._spread_out(cell, ran, lacking):
                    ran[cell].append(rank)
                    wanted.append(rank)
                    self.confirming.add(rank)
            return wanted
        return wanted + self._confirm(ran)

    def _confirm(self, ran: dict[Hashable, list[int]]) -> list[int]:
        """Random ranks, up to three a cell, as long as few ranks of the world run."""
        cells = len(self._cells) - len(self._alone)
        done = sum(bool(self._confirmed & set(ranks)) for ranks in ran.values())
        allowance = min(_MOST_RANKS, self._world.world_size // 4) - sum(map(len, ran.values()))
        allowance = max(allowance, -(-cells // 3) - done)
        chosen: list[int] = []
        for turn in range(_CONFIRMATIONS):
            for cell, ranks in sorted(self._cells.items(), key=lambda item: len(ran[item[0]])):
                if len(ran[cell]) == len(ranks) or len(self._confirmed & set(ran[cell])) > turn:
                    continue
                if allowance <= 0:
                    return chosen
                rank = next(r for r in self._order_in(cell) if r not in ran[cell])
                ran[cell].append(rank)
                chosen.append(rank)
                self.confirming.add(rank)
                self._confirmed.add(rank)
                allowance -= 1
        return chosen

    def _ranks_a_cell(self, ran: dict[Hashable, list[int]]) -> int:
        """As many as the allowance permits, three to eight."""
        allowance = min(_MOST_RANKS, self._world.world_size // 2)
        sizes = [(len(self._cells[cell]), len(ranks)) for cell, ranks in ran.items()]
        for each in range(8, 3, -1):
            if sum(max(min(each, size), have) for size, have in sizes) <= allowance:
                return each
        return 3

    def _order_in(self, cell: Hashable) -> list[int]:
        members = set(self._cells[cell])
        return [rank for rank in self._order if rank in members]

    def _spread_out(self, cell: Hashable, ran: dict[Hashable, list[int]], count: int) -> list[int]:
        """Ranks of the cell at positions of the sharded factors that no like cell has yet: first,
        last, then any."""
        sharded = [i for i, factor in enumerate(self._factors) if factor.level is Level.SHARDED]

        def pick(rank: int, which: list[int]) -> tuple[int, ...]:
            positions = self._world.positions(rank)
            return tuple(positions[i] for i in which)

        communication = self._records[ran[cell][0]].communication
        used = {
            pick(rank, sharded)
            for ranks in ran.values()
            if self._records[ranks[0]].communication == communication
            for rank in ranks
        }
        ends = {tuple(0 for _ in sharded), tuple(self._factors[i].size - 1 for i in sharded)}
        order = [rank for rank in self._order_in(cell) if rank not in ran[cell]]
        order.sort(key=lambda rank: pick(rank, sharded) not in ends)
        chosen: list[int] = []
        for fresh in (True, False):
            for rank in order:
                if len(chosen) >= count:
                    return chosen
                if rank in chosen or (fresh and pick(rank, sharded) in used):
                    continue
                chosen.append(rank)
                used.add(pick(rank, sharded))
        return chosen

    def _split(self) -> bool:
        """Looks for cells whose ranks are not alike; True if cells or wishes changed."""
        for ranks in self._cells.values():
            ran = [rank for rank in ranks if rank in self._records]
            for rank in ran[1:]:
                likeness = compare(self._records[ran[0]], self._records[rank])
                if likeness is Likeness.DIFFERENT:
                    return self._separate(ran[0], rank)
                if likeness is Likeness.SHARDED and self._note_sharding(ran[0], rank):
                    return True
        return False

    def _coarse(self, a: int, b: int) -> list[int]:
        """Factors in which two ranks of a cell differ."""
        pairs = zip(self._world.positions(a), self._world.positions(b), strict=True)
        return [i for i, (x, y) in enumerate(pairs) if x != y]

    def _guilty(self, a: int, b: int, at_least: Likeness) -> list[int] | None:
        """Factors whose change alone makes rank ``a`` as unlike as ``at_least``; all in which ``a`` and
        ``b`` differ, where none does so alone. None: ranks must run first to tell."""
        coarse = self._coarse(a, b)
        if len(coarse) == 1:
            return coarse
        between = {i: self._probe(i, self._world.positions(b)[i], a) for i in coarse}
        missing = self._missing(rank for rank in between.values() if rank is not None)
        if missing:
            self._forced.update(missing)
            return None
        guilty = [
            i
            for i, rank in between.items()
            if rank is not None and compare(self._records[a], self._records[rank]).value >= at_least.value
        ]
        return guilty or coarse

    def _separate(self, a: int, b: int) -> bool:
        """Finds the factor that makes two ranks of a cell different, and takes it position by position."""
        for i in self._guilty(a, b, Likeness.DIFFERENT) or []:
            self._factors[i].level = Level.EACH
        return True

    def _note_sharding(self, a: int, b: int) -> bool:
        """Lays a difference in few blocks to the factor that makes it; True if that is new."""
        if any(self._factors[i].level is Level.SHARDED for i in self._coarse(a, b)):
            return False
        for i in self._guilty(a, b, Likeness.SHARDED) or []:
            self._factors[i].level = Level.SHARDED
        return True

    def _nearest(self, ran: Sequence[int]) -> int:
        """The rank whose program is nearest to those seen: block by block the most frequent among all
        ranks that communicate alike. A program is taken whole, so that what one block allocates
        another frees."""
        if len(ran) == 1:
            return ran[0]
        communication = self._records[ran[0]].communication
        alike = [r.blocks for r in self._records.values() if r.communication == communication]
        votes = [Counter(blocks) for blocks in zip(*alike, strict=True)]

        def score(rank: int) -> int:
            return sum(vote[block] for vote, block in zip(votes, self._records[rank].blocks, strict=True))

        return max(ran, key=score)
