"""How much slower a job is than without its stragglers, and which ops, stages and workers it owes that to.

Definitions after "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025):
S = T / T_ideal; the slowdown of a group alone = T with only that group as slow as measured / T_ideal; the
share of a group M = (T - T without it) / (T - T_ideal). T is the mean time of an iteration, without gaps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prismcore.errors import GraphError
from prismcore.graph import Graph
from prismcore.replay import ReplayResult, replay
from prismcore.stragglers.what_if import WhatIf

__all__ = ["StragglerReport", "analyse"]

#: Of all workers (data-parallel rank and stage), the share that counts as the slowest.
SLOWEST_SHARE = 0.03
#: Operations that are replayed alone, one replay each.
MOST_OPERATIONS = 64


@dataclass(kw_only=True, slots=True)
class StragglerReport:
    """Mean times of an iteration, ns, and what follows from them.

    ``m_slowest_workers`` and ``m_last_stage`` are None where nothing would be gained at all, or where the
    graph does not say which rank is which worker.
    """

    iteration_time_ns: float  #: replay of the graph as it is
    without_gaps_ns: float  #: T
    ideal_ns: float  #: T_ideal
    by_operation: dict[str, float]  #: slowdown by these ops alone
    operations_left_out: int = 0  #: beyond ``MOST_OPERATIONS``: those with the least time beyond the ideal
    by_stage: dict[int, float] = field(default_factory=dict)
    by_dp_rank: dict[int, float] = field(default_factory=dict)
    slowest_workers: list[tuple[int, int]] = field(default_factory=list)  #: (dp rank, stage)
    m_slowest_workers: float | None = None  #: M_W
    m_last_stage: float | None = None  #: M_S

    @property
    def slowdown(self) -> float:
        """S."""
        return self.without_gaps_ns / self.ideal_ns

    def to_json(self) -> dict[str, Any]:
        """The keys of ``prism stragglers --json``, less ``wall_time_s`` and ``warnings``."""
        return {
            "slowdown": self.slowdown,
            "iteration_time_ns": round(self.iteration_time_ns),
            "without_gaps_ns": round(self.without_gaps_ns),
            "ideal_ns": round(self.ideal_ns),
            "by_operation": self.by_operation,
            "operations_left_out": self.operations_left_out,
            "by_stage": {str(k): v for k, v in self.by_stage.items()},
            "by_dp_rank": {str(k): v for k, v in self.by_dp_rank.items()},
            "slowest_workers": [{"dp_rank": d, "stage": s} for d, s in self.slowest_workers],
            "m_slowest_workers": self.m_slowest_workers,
            "m_last_stage": self.m_last_stage,
        }


def analyse(graph: Graph) -> StragglerReport:
    """Replays a graph with stragglers removed, wholly and in part.

    Of more than ``MOST_OPERATIONS`` operations, those that took most beyond their ideal are replayed alone.
    By stage and data-parallel rank where the metadata says which rank is which worker, as
    ``prism import straggler`` writes it. Raises GraphError where iterations take no time.
    """
    what_if = WhatIf(graph)
    measured, ideal = _mean(what_if.measured()), _mean(what_if.ideal())
    if ideal <= 0:
        raise GraphError("iterations of no length found, expected ops that take time")
    excess = what_if.excess_ns()
    largest = set(sorted(excess, key=lambda name: -excess[name])[:MOST_OPERATIONS])
    report = StragglerReport(
        iteration_time_ns=_mean(replay(graph)),
        without_gaps_ns=measured,
        ideal_ns=ideal,
        by_operation={o: _mean(what_if.only_operation(o)) / ideal for o in excess if o in largest},
        operations_left_out=len(excess) - len(largest),
    )
    workers = _workers(graph)
    if not workers:
        return report
    dp_ranks, stages = (sorted({place[i] for place in workers.values()}) for i in (0, 1))
    for where, of, axis in ((report.by_dp_rank, dp_ranks, 0), (report.by_stage, stages, 1)):
        for group in of:
            ranks = {rank for rank, place in workers.items() if place[axis] == group}
            where[group] = _mean(what_if.only_ranks(ranks)) / ideal
    # As the paper: a worker is as slow as the less slow of its two groups, so not each is replayed.
    places = sorted(
        set(workers.values()), key=lambda p: (-min(report.by_dp_rank[p[0]], report.by_stage[p[1]]), p)
    )
    report.slowest_workers = places[: math.ceil(SLOWEST_SHARE * len(places))]

    def share(chosen: Sequence[tuple[int, int]]) -> float | None:
        ranks = {rank for rank, place in workers.items() if place in chosen}
        gain = measured - ideal
        return None if gain == 0 else (measured - _mean(what_if.without_ranks(ranks))) / gain

    report.m_slowest_workers = share(report.slowest_workers)
    report.m_last_stage = share([p for p in places if p[1] == stages[-1]])
    return report


def _mean(result: ReplayResult) -> float:
    return float(result.iteration_time_ns[result.first_counted :].mean())


def _workers(graph: Graph) -> dict[int, tuple[int, int]]:
    """Rank -> data-parallel rank and stage; empty where the graph does not say."""
    named = graph.metadata.get("workers")
    if not isinstance(named, Mapping):
        return {}
    columns = [named.get(key) for key in ("rank", "dp_rank", "stage")]
    if not all(isinstance(c, list) and all(isinstance(v, int) for v in c) for c in columns):
        return {}
    held = set(graph.ranks.tolist())
    return {rank: (dp, stage) for rank, dp, stage in zip(*columns, strict=False) if rank in held}
