"""SPARe's published table beside ours, the same with micro-batches, and endured failures against mu(N, r).

Published figures: SPARe, ICML 2026, arXiv 2603.00357, as secondary notes report them; each row with the
checkpoint interval of the published study, so nothing is left to choose. The published model is simulated
(docs/spare.md). Rows of micro-batches take the interval of prismcore's rule.

    python benchmarks/spare_paper.py [--json] [--seeds N] [--trials N] [--model published|corrected]
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, dataclass

from prismcore.spare import placement as placements
from prismcore.spare.closed_form import endured_failures, endured_failures_finite, mean_depth_finite
from prismcore.spare.life import LifeOptions, endurance, simulate


@dataclass(kw_only=True, slots=True, frozen=True)
class Published:
    policy: str
    groups: int
    redundancy: int
    checkpoint_steps: int
    ttt_ratio: float
    availability: float | None


# Policy, groups, redundancy, steps between checkpoints, time to train, availability.
PUBLISHED = [
    Published(policy=p, groups=n, redundancy=r, checkpoint_steps=c, ttt_ratio=t, availability=a)
    for p, n, r, c, t, a in (
        ("spare", 200, 9, 15, 2.92, 0.8700),
        ("spare", 600, 8, 23, 2.49, 0.9390),
        ("spare", 1000, 9, 30, 2.34, 0.9654),
        ("replication", 200, 3, 6, 6.07, 0.6174),
        ("replication", 600, 3, 8, 4.27, 0.7989),
        ("replication", 1000, 3, 10, 3.88, 0.8441),
        ("spare", 600, 20, 25, 2.8, None),
    )
]


@dataclass(kw_only=True, slots=True, frozen=True)
class Row:
    policy: str
    groups: int
    redundancy: int
    micro_batches: int
    checkpoint_steps: int
    published_ttt: float | None
    ttt_ratio: float
    ttt_ci95: float
    published_availability: float | None
    availability: float
    availability_ci95: float
    mean_depth: float
    mean_compute: float
    endured_per_wipeout: float
    seconds_per_trial: float


def measure(case: Published, micro_batches: int, *, model: str, seeds: int) -> Row:
    found = simulate(
        LifeOptions(
            policy=case.policy,  # type: ignore[arg-type]
            groups=case.groups,
            redundancy=case.redundancy,
            micro_batches=micro_batches,
            checkpoint_steps=case.checkpoint_steps if micro_batches == 1 else None,
            model=model,
            seeds=seeds,
            threads=1,
        )
    )
    as_paper = micro_batches == 1 and model == "published"
    return Row(
        policy=case.policy,
        groups=case.groups,
        redundancy=case.redundancy,
        micro_batches=micro_batches,
        checkpoint_steps=found.checkpoint_steps,
        published_ttt=case.ttt_ratio if as_paper else None,
        ttt_ratio=found.ttt_ratio.mean,
        ttt_ci95=found.ttt_ratio.ci95,
        published_availability=case.availability if as_paper else None,
        availability=found.availability.mean,
        availability_ci95=found.availability.ci95,
        mean_depth=found.mean_depth.mean,
        mean_compute=found.mean_compute.mean,
        endured_per_wipeout=found.endured_per_wipeout.mean,
        seconds_per_trial=found.wall_time_s / seeds,
    )


def show(row: Row) -> str:
    beside = "" if row.published_ttt is None else f"{row.published_ttt:.2f}"
    off = "" if row.published_ttt is None else f"{100 * (row.ttt_ratio / row.published_ttt - 1):+.1f} %"
    up = row.published_availability
    points = "" if up is None else f"{100 * (row.availability - up):+.1f}"
    return (
        f"| {row.policy} N={row.groups} r={row.redundancy} m={row.micro_batches} | {row.checkpoint_steps} "
        f"| {beside} | {row.ttt_ratio:.3f} ± {row.ttt_ci95:.3f} | {off} "
        f"| {'' if up is None else f'{100 * up:.2f}'} | {100 * row.availability:.2f} ± "
        f"{100 * row.availability_ci95:.2f} | {points} | {row.mean_depth:.3f} | {row.mean_compute:.3f} "
        f"| {row.endured_per_wipeout:.1f} | {row.seconds_per_trial:.2f} |"
    )


@dataclass(kw_only=True, slots=True, frozen=True)
class Endured:
    groups: int
    redundancy: int
    measured: float
    standard_error: float
    mu: float
    finite: float


def count_endured(groups: int, redundancy: int, trials: int) -> Endured:
    found = endurance(placements.golomb(groups, redundancy), trials=trials, threads=1).endured
    return Endured(
        groups=groups,
        redundancy=redundancy,
        measured=float(found.mean()),
        standard_error=float(found.std(ddof=1)) / math.sqrt(trials),
        mu=endured_failures(groups, redundancy),
        finite=endured_failures_finite(groups, redundancy),
    )


@dataclass(kw_only=True, slots=True, frozen=True)
class Depth:
    groups: int
    redundancy: int
    micro_batches: int
    measured: float
    finite: float


def count_depth(groups: int, redundancy: int, micro_batches: int, trials: int) -> Depth:
    runs = endurance(
        placements.golomb(groups, redundancy), trials=trials, micro_batches=micro_batches, threads=1
    )
    return Depth(
        groups=groups,
        redundancy=redundancy,
        micro_batches=micro_batches,
        measured=float((runs.mean_depth * runs.endured).sum() / runs.endured.sum()),
        finite=mean_depth_finite(groups, redundancy, micro_batches),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=2000, help="of endured failures; depths take a tenth")
    parser.add_argument("--model", default="published", choices=["published", "corrected"])
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    lives = [
        measure(case, m, model=args.model, seeds=args.seeds)
        for m in (1, 8, 16)
        for case in PUBLISHED
        if m == 1 or case.policy == "spare"
    ]
    endured = [
        count_endured(groups, r, args.trials)
        for groups, most in ((200, 12), (600, 20), (1000, 26))
        for r in range(2, most + 1)
    ]
    depths = [count_depth(600, r, m, max(1, args.trials // 10)) for r in (3, 9, 20) for m in (1, 4, 8, 16)]
    if args.json:
        print(json.dumps({name: [asdict(row) for row in rows] for name, rows in
                          (("lives", lives), ("endured", endured), ("depths", depths))}))  # fmt: skip
        return
    print(f"\nTime to train and availability, {args.model} model, {args.seeds} seeds\n")
    columns = ["case", "interval", "published", "ours", "", "published %", "ours %", "points"]
    columns += ["mean depth", "mean compute", "endured per wipe-out", "s per trial"]
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for row in lives:
        print(show(row))
    print(f"\nFailures endured until wipe-out, {args.trials} trials\n")
    print("| N | r | measured | ± | mu(N, r) | off | finite sum | off |")
    print("|---|---|---|---|---|---|---|---|")
    for e in endured:
        print(
            f"| {e.groups} | {e.redundancy} | {e.measured:.1f} | {1.96 * e.standard_error:.1f} | {e.mu:.1f} "
            f"| {100 * (e.measured / e.mu - 1):+.2f} % | {e.finite:.1f} "
            f"| {100 * (e.measured / e.finite - 1):+.2f} % |"
        )
    print("\nMean depth over all failures until wipe-out, in shards, N = 600\n")
    print("| r | m | measured | finite form |")
    print("|---|---|---|---|")
    for d in depths:
        print(f"| {d.redundancy} | {d.micro_batches} | {d.measured:.3f} | {d.finite:.3f} |")


if __name__ == "__main__":
    main()
