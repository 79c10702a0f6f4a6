"""Seconds per simulated life, and how they grow with the groups, the steps and the micro-batches.

One thread, the published model, redundancy 9. Goal: 10,000 steps at 1,000 groups in under 2 s per life.

    python benchmarks/spare_life_scale.py [--json] [--seeds N]
"""

from __future__ import annotations

import argparse
import json

from prismcore.spare.life import LifeOptions, simulate

CASES = [
    *((groups, 10_000, 1, False) for groups in (200, 600, 1000, 2000, 4000)),
    *((1000, steps, 1, False) for steps in (2500, 5000, 20_000, 40_000)),
    *((1000, 10_000, m, False) for m in (4, 8, 16)),
    (1000, 10_000, 1, True),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = []
    for groups, steps, micro_batches, every_group in CASES:
        found = simulate(
            LifeOptions(
                groups=groups,
                redundancy=9,
                steps=steps,
                micro_batches=micro_batches,
                jitter_every_group=every_group,
                seeds=args.seeds,
                threads=1,
            )
        )
        rows.append(
            {
                "groups": groups,
                "steps": steps,
                "micro_batches": micro_batches,
                "jitter": "every group" if every_group else "the slowest",
                "failures": found.over_seeds(lambda trial: trial.failures).mean,
                "seconds_per_life": found.wall_time_s / args.seeds,
            }
        )
    if args.json:
        print(json.dumps(rows))
        return
    print("| N | steps | m | jitter drawn for | failures | s per life |\n|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['groups']:,} | {row['steps']:,} | {row['micro_batches']} | {row['jitter']} "
            f"| {row['failures']:,.0f} | {row['seconds_per_life']:.2f} |"
        )


if __name__ == "__main__":
    main()
