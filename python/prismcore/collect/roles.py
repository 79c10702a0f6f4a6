"""What a rank is in its job: its position in each kind of communicator.

A *kind* is a set of disjoint groups that a program makes in one go: all tensor-parallel groups, all
data-parallel groups. From the groups that one rank saw being made follow the kinds, and from those the
*factors*: kinds whose positions, taken together, name a rank (Megatron: tensor, pipeline, data).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prismcore import _core
from prismcore.errors import CollectError

__all__ = ["Factor", "GroupRow", "Kind", "Roles", "SlotRole"]

#: Description, torch's name (None: not named on the rank that saw it), ranks by position.
GroupRow = tuple[str, str | None, Sequence[int]]

IntArray = npt.NDArray[np.int64]


@dataclass(slots=True)
class Kind:
    """Disjoint groups of one description. Arrays have shape [world]; -1: in no group."""

    name: str
    groups: list[IntArray]
    names: list[str | None]
    group_of: IntArray
    position_of: IntArray

    @property
    def covers_world(self) -> bool:
        return bool((self.group_of >= 0).all())

    @property
    def uniform_size(self) -> int | None:
        sizes = {len(group) for group in self.groups}
        return sizes.pop() if len(sizes) == 1 else None

    def group(self, rank: int) -> IntArray | None:
        index = int(self.group_of[rank])
        return self.groups[index] if index >= 0 else None


@dataclass(slots=True, frozen=True)
class Factor:
    """A coordinate of every rank: ``position`` has shape [world], values 0 .. size - 1."""

    name: str
    size: int
    position: IntArray


@dataclass(slots=True, frozen=True)
class SlotRole:
    """What a communicator of a rank is to it: a kind and, for a pair of ranks of one group, how far
    the other stands (0: the whole group). ``mark``: what stands before its name (groups that communicate
    from host memory)."""

    kind: int
    offset: int
    size: int
    mark: str = ""


class Roles:
    """Kinds and factors of a world, from the groups that a rank saw being made."""

    def __init__(self, rows: Sequence[GroupRow], world_size: int, gpus_per_node: int) -> None:
        self.world_size = world_size
        self.gpus_per_node = gpus_per_node
        self.kinds = [self._world_kind(), *self._find_kinds(rows)]
        self._by_name: dict[str, tuple[int, int]] = {}
        for k, kind in enumerate(self.kinds):
            for g, name in enumerate(kind.names):
                if name is not None:
                    self._by_name[name] = (k, g)
        self.factors = self._find_factors()
        self._by_positions = {self.positions(rank): rank for rank in range(world_size)}

    def factor_sizes(self) -> list[int]:
        return [factor.size for factor in self.factors]

    def positions(self, rank: int) -> tuple[int, ...]:
        """The rank's coordinate in each factor."""
        return tuple(int(factor.position[rank]) for factor in self.factors)

    def rank_at(self, positions: Sequence[int]) -> int | None:
        return self._by_positions.get(tuple(positions))

    def surroundings(self, messaging: frozenset[int] = frozenset()) -> list[tuple[object, ...]]:
        """Per rank, what must be equal beyond positions for two ranks to be alike: which kinds it is
        in, how large those groups are and how they lie over nodes; in the kinds that send messages,
        also whether the neighbours are on the same node.
        """
        out: list[list[object]] = [[] for _ in range(self.world_size)]
        for k, kind in enumerate(self.kinds):
            absent = set(range(self.world_size))
            for group in kind.groups:
                nodes = group // self.gpus_per_node
                _, counts = np.unique(nodes, return_counts=True)
                shape = (len(group), len(counts), int(counts.min()), int(counts.max()))
                near = (np.roll(nodes, -1) == nodes).tolist() if k in messaging else None
                for i, rank in enumerate(group.tolist()):
                    out[rank].append((k, *shape, near and (near[i], near[i - 1])))
                    absent.discard(rank)
            for rank in absent:
                out[rank].append(None)
        return [tuple(entries) for entries in out]

    def positions_in(self, group_name: str) -> list[int]:
        """Per rank, its position in the groups of the kind of that group (torch's name); -1: in none."""
        kind, _ = self._by_name[group_name]
        positions: list[int] = self.kinds[kind].position_of.tolist()
        return positions

    def slot_role(self, rank: int, name: str, members: Sequence[int]) -> SlotRole:
        """Role of one of the rank's communicators, by the name torch gave it (``description:name``)."""
        mark = _core.HOST_GROUP_MARK if name.startswith(_core.HOST_GROUP_MARK) else ""
        group_name = name.rpartition(":")[2]
        found = self._by_name.get(group_name)
        if found is None:
            raise CollectError(
                f"communicator {name!r} of rank {rank}: found no process group of that name, expected one "
                "that torch.distributed made"
            )
        kind, _ = found
        group = self.kinds[kind].group(rank)
        if group is None:
            raise CollectError(f"communicator {name!r}: rank {rank} is not in such a group")
        if len(members) == len(group):
            return SlotRole(kind, 0, len(group), mark)
        other = next((m for m in members if m != rank), None)
        if len(members) != 2 or other is None or other not in group:
            raise CollectError(
                f"communicator {name!r} of rank {rank}: found {len(members)} members, expected the "
                f"{len(group)} of its group, or two of them"
            )
        position = self.kinds[kind].position_of
        return SlotRole(kind, int(position[other] - position[rank]) % len(group), 2)

    def slot_members(
        self, rank: int, role: SlotRole
    ) -> tuple[str, tuple[int, int, str], list[int] | IntArray]:
        """Name, identity and members of the communicator that has this role for ``rank``."""
        kind = self.kinds[role.kind]
        group = kind.group(rank)
        if group is None:
            raise CollectError(f"rank {rank} is in no group of kind {kind.name}")
        index = int(kind.group_of[rank])
        name = f"{role.mark}{kind.name.partition('#')[0]}:{kind.names[index]}"
        if role.offset == 0:
            return name, (role.kind, index, role.mark), group
        position = int(kind.position_of[rank])
        pair = sorted((position, (position + role.offset) % len(group)))
        members = [int(group[p]) for p in pair]
        return name, (-1 - role.kind, members[0] * self.world_size + members[1], role.mark), members

    def _world_kind(self) -> Kind:
        ranks = np.arange(self.world_size)
        return Kind("default_pg", [ranks], ["0"], np.zeros_like(ranks), ranks)

    def _find_kinds(self, rows: Sequence[GroupRow]) -> list[Kind]:
        # The n-th group of a description that a rank is in belongs to that description's n-th kind.
        gathered: dict[tuple[str, int], list[tuple[str | None, IntArray]]] = defaultdict(list)
        seen: dict[str, IntArray] = {}
        for description, name, ranks in rows:
            members = np.asarray(ranks, dtype=np.int64)
            if len(members) == 0 or members.max() >= self.world_size:
                continue
            counts = seen.setdefault(description, np.zeros(self.world_size, dtype=np.int64))
            number = int(counts[members].max())
            counts[members] = number + 1
            gathered[description, number].append((name, members))
        kinds = []
        for (description, number), groups in gathered.items():
            group_of = np.full(self.world_size, -1)
            position_of = np.full(self.world_size, -1)
            for g, (_, members) in enumerate(groups):
                group_of[members] = g
                position_of[members] = np.arange(len(members))
            kinds.append(
                Kind(
                    f"{description}#{number}" if number else description,
                    [members for _, members in groups],
                    [name for name, _ in groups],
                    group_of,
                    position_of,
                )
            )
        return kinds

    def _find_factors(self) -> list[Factor]:
        """Smallest kinds first (a kind made of others is larger than its parts), each taken if its
        positions are independent of those before; what is left is counted in rank order."""
        candidates = [
            (size, k)
            for k, kind in enumerate(self.kinds)
            if kind.covers_world and (size := kind.uniform_size) is not None and 1 < size < self.world_size
        ]
        factors: list[Factor] = []
        joint = np.zeros(self.world_size, dtype=np.int64)
        distinct = 1
        for size, k in sorted(candidates):
            position = self.kinds[k].position_of
            finer = joint * size + position
            if len(np.unique(finer)) == distinct * size:
                factors.append(Factor(self.kinds[k].name, size, position))
                _, joint = np.unique(finer, return_inverse=True)
                distinct *= size
        if distinct < self.world_size:
            order = np.argsort(joint, kind="stable")
            starts = np.flatnonzero(np.diff(joint[order], prepend=-1))
            lengths = np.diff(np.append(starts, self.world_size))
            rest = np.empty(self.world_size, dtype=np.int64)
            rest[order] = np.arange(self.world_size) - np.repeat(starts, lengths)
            factors.append(Factor("rank", int(lengths.max()), rest))
        return factors
