"""How a training with SPARe is set up."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field

from prismcore.errors import SpareError
from prismcore.spare.placement import Placement
from prismcore.spare.runtime.inject import Injection

__all__ = ["LIGHTHOUSE_VARIABLE", "SessionOptions", "Timeouts"]

LIGHTHOUSE_VARIABLE = "TORCHFT_LIGHTHOUSE"
"""The environment variable that torchft takes the lighthouse's address from, too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeouts:
    """All in seconds. How long silence lasts until a group counts as dead is the lighthouse's to say
    (``--heartbeat_timeout_ms``).

    Attributes:
        heartbeat_s: between two signs of life.
        collective_s: the longest wait for groups that are alive: the slowest group's step and more.
        agree_s: the longest wait for a quorum of groups that are alive.
        lighthouse_s: how long the lighthouse may be away.
        settle_s: a lighthouse that has begun anew is given so long to hear of each group that is alive,
            before the others go on without it. It costs time only where groups are lost while the
            lighthouse is away.
        meet_s: the longest wait for all members of a new membership to meet.
        begin_s: after it a training begins without the groups that are not there; None: never.
        rejoin_s: how often the members look for groups that want to join.
        leave_s: the longest wait for the others at the end.
        inside_s: so long may a rank of the own group be silent (all its threads) until the group is lost.
    """

    heartbeat_s: float = 0.1
    collective_s: float = 600.0
    agree_s: float = 600.0
    lighthouse_s: float = 120.0
    settle_s: float = 10.0
    meet_s: float = 30.0
    begin_s: float | None = None
    rejoin_s: float = 1.0
    leave_s: float = 10.0
    inside_s: float = 10.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is None and name == "begin_s":
                continue
            if value is None or not value > 0:
                raise SpareError(f"{name} = {value} found, expected more than 0 seconds")


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionOptions:
    """
    Attributes:
        placement: who hosts which shards; the same on all groups.
        micro_batches: m, of a shard; the same on all groups.
        group: this group's number, 0 to N - 1; None: a hot spare, which takes the place of a lost group.
        training: its name; a lighthouse serves one training.
        lighthouse: ``http://host:29510``; default: the variable TORCHFT_LIGHTHOUSE.
        backend: ``gloo`` or ``nccl``, for the sums between groups.
        deterministic: sum part by part in a fixed order: the result does not depend on failures to the
            last bit. Each part's gradients are kept and sent alone.
        seed: torch's random numbers are seeded for each micro-batch from it; None: they are left alone.
        init_sync: at the beginning all take the weights of one group; switch it off only where all begin
            alike.
        host: name under which other groups, and ranks of this one, reach this machine.
        position, positions: which of how many ranks of its group this is, from 0. The ranks of a group
            compute each micro-batch together; each has a session, and sums its own gradients with its
            counterparts in the other groups.
        store: address of the group's own store, ``host:port``, at which its ranks meet; default: that of
            torchrun (MASTER_ADDR, MASTER_PORT). Not used where a group is one rank.
        timeouts: see there.
        inject: failures on purpose, for tests.
    """

    placement: Placement
    micro_batches: int
    group: int | None
    training: str = "training"
    lighthouse: str = field(default_factory=lambda: os.environ.get(LIGHTHOUSE_VARIABLE, ""))
    backend: str = "gloo"
    deterministic: bool = False
    seed: int | None = 0
    init_sync: bool = True
    host: str = field(default_factory=socket.gethostname)
    position: int = 0
    positions: int = 1
    store: str = ""
    timeouts: Timeouts = field(default_factory=Timeouts)
    inject: tuple[Injection, ...] = ()

    def __post_init__(self) -> None:
        groups = self.placement.groups
        if self.group is not None and not 0 <= self.group < groups:
            raise SpareError(f"group {self.group} found, expected 0 to {groups - 1}, or None for a spare")
        if self.micro_batches < 1:
            raise SpareError(f"{self.micro_batches} micro-batches found, expected 1 or more")
        if self.backend not in ("gloo", "nccl"):
            raise SpareError(f"backend {self.backend!r} found, expected gloo or nccl")
        if not 0 <= self.position < self.positions:
            raise SpareError(
                f"position {self.position} of {self.positions} found, expected 0 to positions - 1"
            )
        if self.positions > 1:
            self._check_store()
        if not self.lighthouse:
            raise SpareError(
                f"no lighthouse given and {LIGHTHOUSE_VARIABLE} is not set: start torchft_lighthouse and "
                "name its address"
            )

    def _check_store(self) -> None:
        port = self.store.rpartition(":")[2]
        if self.store and not port.isdecimal():
            raise SpareError(f"store {self.store!r} found, expected host:port")
        if not self.store and not {"MASTER_ADDR", "MASTER_PORT"} <= set(os.environ):
            raise SpareError(
                f"a group of {self.positions} ranks has no store, and MASTER_ADDR or MASTER_PORT is not set; "
                "expected the group to be started by torchrun, or store='host:port' of the group's own"
            )
