"""What failed ranks leave behind: who waits for them, where, and since when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prismcore.rank_list import named_ranks
from prismcore.units import format_ns, plural

__all__ = ["FailureReport", "Wait", "WaitingRank"]

_SHOWN = 8


@dataclass(kw_only=True, slots=True, frozen=True)
class WaitingRank:
    """Times in ns."""

    rank: int
    op: int  #: of its program, from 0
    call_site: str  #: empty: not known
    since_ns: int  #: when its device came to the op


@dataclass(kw_only=True, slots=True, frozen=True)
class Wait:
    """A collective or message that never ends, and the ranks whose first such op it is."""

    communicator: str
    op: str
    number: int | None  #: of the collective in its communicator, from 0; None: a message
    missing: Sequence[int]  #: ranks that have not come, or failed on the way; none: members disagree
    failed: Sequence[int]  #: ranks whose failure is behind it, through others or not
    ranks: Sequence[WaitingRank]

    def describe(self) -> str:
        """One line: who waits where, since when and for whom."""
        first = min(self.ranks, key=lambda r: r.since_ns)
        which = "" if self.number is None else f" (collective {self.number})"
        site = f" at {first.call_site}" if first.call_site else ""
        behind = "" if set(self.failed) <= set(self.missing) else f", because of {named_ranks(self.failed)}"
        awaited = f"for {named_ranks(self.missing)}" if self.missing else "whose members disagree"
        return (
            f"{named_ranks([r.rank for r in self.ranks])} on communicator {self.communicator!r}{which}: "
            f"rank {first.rank} op {first.op} ({self.op}){site}, since {format_ns(first.since_ns)}, "
            f"{awaited}{behind}"
        )


@dataclass(kw_only=True, slots=True, frozen=True)
class FailureReport:
    """Which ranks failed, and which cannot go on."""

    failed: Mapping[int, int]  #: ranks that did not end their program before they failed, and when, ns
    waits: Sequence[Wait]  #: by how long they have lasted; none: all others ended their programs
    iterations: Mapping[int, int]  #: that each rank ended

    @property
    def stopped(self) -> bool:
        """Whether ranks cannot go on that have not failed themselves."""
        return bool(self.waits)

    @property
    def waiting(self) -> list[int]:
        """Ranks that cannot go on, rising."""
        return sorted(r.rank for wait in self.waits for r in wait.ranks)

    def lines(self) -> list[str]:
        """For people: what happened, and a line for each of the longest waits."""
        if not self.failed and not self.stopped:
            return ["every rank ended its program before it was to fail"]
        fates = [
            f"rank {rank} at {format_ns(at)}, after {plural(self.iterations[rank], 'iteration')}"
            for rank, at in self.failed.items()
        ]
        shown = "; ".join(fates[:_SHOWN])
        if len(fates) > _SHOWN:
            shown += f"; ... ({len(fates):,} in all)"
        if not self.stopped:
            return [f"failed: {shown}; all others ended their programs"]
        waits = [wait.describe() for wait in self.waits[:_SHOWN]]
        if len(self.waits) > _SHOWN:
            waits.append(f"... ({len(self.waits):,} waits in all)")
        waiting, ranks = len(self.waiting), plural(len(self.iterations), "rank")
        wait = "waits" if waiting == 1 else "wait"
        what = f"failed: {shown}" if self.failed else "stuck"
        return [f"{what}; {waiting:,} of {ranks} {wait} for ever", *waits]

    def to_json(self) -> dict[str, Any]:
        """``failure`` of ``prism replay --json``."""
        return {
            "stopped": self.stopped,
            "failed": {
                str(rank): {"at_ns": at, "iterations": self.iterations[rank]}
                for rank, at in self.failed.items()
            },
            "waits": [
                {
                    "communicator": wait.communicator,
                    "op": wait.op,
                    "number": wait.number,
                    "missing": list(wait.missing),
                    "failed": list(wait.failed),
                    "ranks": {
                        str(r.rank): {
                            "op": r.op,
                            "call_site": r.call_site,
                            "since_ns": r.since_ns,
                            "iterations": self.iterations[r.rank],
                        }
                        for r in wait.ranks
                    },
                }
                for wait in self.waits
            ],
        }


def report_of(raw: Mapping[str, Any], ranks: Sequence[int]) -> FailureReport:
    """What the engine found, under the names of the core's ``FailureReport``."""
    return FailureReport(
        failed=dict(raw["failed"]),
        iterations=dict(zip(ranks, raw["iterations"].tolist(), strict=True)),
        waits=[
            Wait(
                communicator=wait["communicator"],
                op=wait["op"],
                number=wait["number"],
                missing=wait["missing"],
                failed=wait["failed"],
                ranks=[
                    WaitingRank(rank=rank, op=op, call_site=site, since_ns=since)
                    for rank, op, site, since in wait["ranks"]
                ],
            )
            for wait in raw["waits"]
        ],
    )
