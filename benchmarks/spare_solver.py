"""What one failure costs the reorder solver over a whole life until wipe-out, beside solving anew.

Groups fail one by one in a seeded order, a step is committed after each. Beside it, at samples spread
over the same life, scipy's maximum_bipartite_matching (one micro-batch: types against the slots of the
survivors) and OR-tools' maximum flow, both at the depth that the solver found; neither looks for that
depth, nor for the least change, and building their graphs is not counted. Times are processor time of
the calling thread.

    python benchmarks/spare_solver.py [--json] [--groups LIST] [--redundancy R] [--micro-batches LIST]
                                      [--lives N] [--samples N] [--placement golomb|spread|random]
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from dataclasses import asdict, dataclass

import numpy as np

from prismcore.spare import placement as places
from prismcore.spare.placement import Placement
from prismcore.spare.reorderer import Reorderer


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One solver over all failures, or over those that led to one depth."""

    solver: str
    groups: int
    redundancy: int
    micro_batches: int
    depth: int | None  #: in micro-batches; None: all
    failures: int  #: that were timed
    median_us: float
    p99_us: float
    max_us: float
    new_work: float | None  #: mean micro-batches that are computed elsewhere after a failure
    mean_depth: float  #: in shards, over the failures timed


def timed_us(call) -> tuple[float, object]:
    begin = time.thread_time_ns()
    result = call()
    return (time.thread_time_ns() - begin) / 1e3, result


def live(solver: Reorderer, seed: int) -> list[tuple[float, int, int]]:
    """(time, depth, new work) of each failure until wipe-out."""
    solver.restart()
    found = []
    for group in np.random.default_rng(seed).permutation(solver.placement.groups).tolist():
        spent, plan = timed_us(lambda group=group: solver.fail(group))
        if plan.wipe_out:
            break
        found.append((spent, plan.depth, plan.new_work))
        solver.commit()
    return found


def anew(placement: Placement, parts: int, seed: int, depths: list[int], samples: int):
    """(solver, time, depth) at samples of the life that took these depths."""
    from ortools.graph.python import max_flow
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    groups, redundancy = placement.groups, placement.redundancy
    order = np.random.default_rng(seed).permutation(groups)
    stacks = placement.stacks()
    for at in np.unique(np.linspace(0, len(depths) - 1, samples).astype(int)):
        depth = depths[at]
        up = np.sort(order[at + 1 :])
        types = stacks[up].ravel()
        if parts == 1:
            slots = np.arange(len(up) * depth).reshape(len(up), depth)
            columns = np.repeat(slots, redundancy, axis=0).ravel()
            rows = np.repeat(types, depth)
            graph = csr_array((np.ones(len(rows), np.int8), (rows, columns)), shape=(groups, slots.size))
            spent, match = timed_us(lambda graph=graph: maximum_bipartite_matching(graph, "column"))
            assert (match >= 0).all()
            yield "scipy matching anew", spent, depth
        flow = max_flow.SimpleMaxFlow()
        source, sink = 2 * groups, 2 * groups + 1
        everything = np.arange(groups)
        tails = np.concatenate([np.full(groups, source), types, groups + up])
        heads = np.concatenate([everything, groups + np.repeat(up, redundancy), np.full(len(up), sink)])
        capacities = np.full(len(tails), parts)
        capacities[-len(up) :] = depth
        flow.add_arcs_with_capacity(tails, heads, capacities)
        spent, status = timed_us(lambda flow=flow: flow.solve(2 * groups, 2 * groups + 1))
        assert status == flow.OPTIMAL
        assert flow.optimal_flow() == groups * parts
        yield "OR-tools max-flow anew", spent, depth


def row(solver, placement, parts, times, depths, *, depth=None, new_work=None) -> Row:
    return Row(
        solver=solver,
        groups=placement.groups,
        redundancy=placement.redundancy,
        micro_batches=parts,
        depth=depth,
        failures=len(times),
        median_us=float(np.median(times)),
        p99_us=float(np.quantile(times, 0.99)),
        max_us=float(max(times)),
        new_work=None if new_work is None else float(np.mean(new_work)),
        mean_depth=float(np.mean(depths)) / parts,
    )


def measure(placement: Placement, parts: int, lives: int, samples: int) -> list[Row]:
    solver = Reorderer(placement, micro_batches=parts)
    live(solver, 0)  # memory grows to its size
    found = [live(solver, seed) for seed in range(lives)]
    every = [failure for life in found for failure in life]
    times, depths, new_work = zip(*every, strict=True)
    rows = [row("prismcore", placement, parts, times, depths, new_work=new_work)]
    by_depth = defaultdict(list)
    for spent, depth, work in every:
        by_depth[depth].append((spent, work))
    for depth, those in sorted(by_depth.items()):
        spent, work = zip(*those, strict=True)
        rows.append(
            row("prismcore", placement, parts, spent, [depth] * len(spent), depth=depth, new_work=work)
        )
    if samples:
        others = defaultdict(list)
        for name, spent, depth in anew(placement, parts, 0, [failure[1] for failure in found[0]], samples):
            others[name].append((spent, depth))
        for name, those in others.items():
            rows.append(row(name, placement, parts, *zip(*those, strict=True)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--groups", default="600,2400,9375", help="comma-separated")
    parser.add_argument("--redundancy", type=int, default=20)
    parser.add_argument("--micro-batches", default="1,8", help="comma-separated")
    parser.add_argument("--lives", type=int, default=3)
    parser.add_argument("--samples", type=int, default=40, help="of the solvers that start anew; 0: none")
    parser.add_argument("--placement", choices=["golomb", "spread", "random"], default="golomb")
    parser.add_argument("--per-depth", action="store_true", help="also a row for each depth")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = []
    for parts in map(int, args.micro_batches.split(",")):
        for groups in map(int, args.groups.split(",")):
            placement = getattr(places, args.placement)(groups, args.redundancy)
            rows += measure(placement, parts, args.lives, args.samples)
    if args.json:
        print(json.dumps([asdict(one) for one in rows], indent=2))
        return
    from rich.console import Console

    from prismcore.report.table import rows_table

    columns = ["solver", "N", "r", "m", "depth", "failures", "median us", "p99 us", "max us", "new work", "S"]
    table = [
        [
            one.solver,
            one.groups,
            one.redundancy,
            one.micro_batches,
            "all" if one.depth is None else one.depth,
            one.failures,
            f"{one.median_us:.1f}",
            f"{one.p99_us:.1f}",
            f"{one.max_us:.0f}",
            "" if one.new_work is None else f"{one.new_work:.1f}",
            f"{one.mean_depth:.3f}",
        ]
        for one in rows
        if one.depth is None or args.per_depth
    ]
    console = Console()
    if not console.is_terminal:
        console.width = 120
    console.print(rows_table("One failure, over lives until wipe-out", columns, table))


if __name__ == "__main__":
    main()
