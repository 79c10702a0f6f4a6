"""The process groups that a program makes: all of the job's, not only those of this rank.

Every rank calls ``new_group`` for every group of the job, so one rank sees them all. Torch keeps
those it is a member of; the table here keeps every call, in order. Making 24,000 groups (8,192
ranks of Megatron) is a large part of a rank's start, and nearly all of them are groups of others:
for those, the bookkeeping that torch does is repeated here without its detours.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed.distributed_c10d as c10d

from prismcore.launch import late

__all__ = ["GroupTable"]


class GroupTable:
    """Description, torch's name (None: a split of others, which torch does not name here), ranks."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str | None, list[int]]] = []
        self.had_default = False  #: there was a default group, also where it is destroyed meanwhile
        self._ranks: dict[str, list[int]] = {}

    def install(self) -> None:
        """Listens to every way that torch makes groups; call once, before the program runs."""
        c10d._new_group_with_tag = self._new_group(c10d._new_group_with_tag)
        late.use_split_group(self._split_group)
        c10d._update_default_pg = self._update_default(c10d._update_default_pg)

    def members(self, name: str) -> list[int] | None:
        """Ranks of the group that torch calls ``name``, by position."""
        if name not in self._ranks:
            for group, ranks in c10d._world.pg_group_ranks.items():
                if c10d._world.pg_names.get(group) == name:
                    self._ranks[name] = sorted(ranks, key=ranks.__getitem__)
                    break
        return self._ranks.get(name)

    def checksum(self) -> int:
        """Equal on two ranks that made the same groups."""
        value = 0
        for description, name, ranks in self.rows:
            value = zlib.crc32(f"{description}/{name}/{len(ranks)}/".encode(), value)
            value = zlib.crc32(array("Q", ranks).tobytes(), value)
        return value

    def _add(self, description: str | None, name: str | None, ranks: list[int]) -> None:
        self.rows.append((description or "undefined", name, ranks))
        if name is not None:
            self._ranks[name] = ranks

    def _update_default(self, original: Callable[[Any], None]) -> Callable[[Any], None]:
        def update_default_pg(pg: Any) -> None:
            self.had_default |= pg is not None
            original(pg)

        return update_default_pg

    def _new_group(self, original: Callable[..., Any]) -> Callable[..., Any]:
        known_backends: set[object] = {None}
        known_timeouts: set[object] = {None}
        slow_default = False
        last_default: object = None

        def new_group_with_tag(  # noqa: PLR0917  (torch's own signature)
            ranks: Sequence[int] | None = None,
            timeout: Any = None,
            backend: Any = None,
            backend_options: object | None = None,
            pg_tag: str | None = None,
            use_local_synchronization: bool = False,
            group_desc: str | None = None,
            device_id: Any = None,
            sort_ranks: bool = True,
        ) -> Any:
            nonlocal last_default, slow_default
            world = c10d._world
            default = world.default_pg
            if default is not last_default and default is not None:
                last_default = default
                slow_default = (
                    callable(getattr(default, "new_group", None))
                    or default.bound_device_id is not None
                    or c10d._is_barrier_after_init() == 1
                )
            members = list(ranks) if ranks is not None else None
            if (
                default is not None
                and members
                and not slow_default
                and not pg_tag
                and not use_local_synchronization
                and device_id is None
                and backend in known_backends
                and timeout in known_timeouts
                and all(type(rank) is int for rank in members)
                and default.rank() not in members
                and len(set(members)) == len(members)
                and min(members) >= 0
                and max(members) < default.size()
            ):
                if sort_ranks:
                    members.sort()
                name = c10d._process_group_name(members, use_hashed_name=False)
                absent = c10d.GroupMember.NON_GROUP_MEMBER
                world.pg_group_ranks[absent] = {rank: i for i, rank in enumerate(members)}
                self._add(group_desc, name, members)
                return absent
            count = world.group_count
            group = original(
                ranks=ranks,
                timeout=timeout,
                backend=backend,
                backend_options=backend_options,
                pg_tag=pg_tag,
                use_local_synchronization=use_local_synchronization,
                group_desc=group_desc,
                device_id=device_id,
                sort_ranks=sort_ranks,
            )
            # It went through, so these values are good.
            if isinstance(backend, str):
                known_backends.add(backend)
            known_timeouts.add(timeout)
            if members is None and default is not None:
                members = list(range(default.size()))
            elif sort_ranks and members is not None:
                members.sort()
            if group != c10d.GroupMember.NON_GROUP_MEMBER:
                self._add(group_desc, world.pg_names.get(group), members or [])
            elif not use_local_synchronization:
                self._add(group_desc, str(count), members or [])
            return group

        return new_group_with_tag

    def _split_group(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def split_group(
            parent_pg: Any = None, split_ranks: list[list[int]] | None = None, *args: Any, **kwargs: Any
        ) -> Any:
            group = original(parent_pg, split_ranks, *args, **kwargs)
            world = c10d._world
            mapping = world.pg_group_ranks[parent_pg if parent_pg is not None else world.default_pg]
            parent = sorted(mapping, key=mapping.__getitem__)
            member = group != c10d.GroupMember.NON_GROUP_MEMBER
            description = kwargs.get("group_desc") or (group.group_desc if member else "split")
            mine = set(world.pg_group_ranks[group]) if member else set()
            for positions in split_ranks or []:
                ranks = [parent[position] for position in positions]
                self._add(description, world.pg_names.get(group) if set(ranks) == mine else None, ranks)
            return group

        return split_group
