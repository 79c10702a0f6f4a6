"""Replay against the ranks of the job: two workloads that public simulators were timed on.

barrier: every rank alternates 100 computes of about 100 us (own times, seeded) and 100 all-reduces of
1 MiB over all ranks, costed on 8-GPU nodes with a network between them. ASTRA-sim 2 (analytical,
two-dimensional hierarchy, equal compute times on all ranks) took 22.9 s and 320 MiB at 1,024 ranks,
202 s and 1.7 GiB at 4,096 on a 2-core machine.

ring: 200 rounds of (compute 100 to 105 us, seeded; send 1 KiB to the next rank and receive from the
previous one, both before the next compute). LogGOPSim took 0.33 s at 1,024 ranks, 2.1 s at 4,096,
6.9 s and 222 MB at 8,192 on such a machine, 0.4 to 1.05 us an event. It times bytes by LogGP; here a
message takes what its op says.

Neither workload folds: no two ranks have equal programs. The graph is built in a process of its own
and replayed in a fresh one; replay_s is the best of the repeats, the memory that of the whole process.

    python benchmarks/replay_scale.py [--json] [--workload barrier|ring] [--ranks LIST] [--repeats N]
"""

from __future__ import annotations

import argparse

from replay_measure import measure, show

RANKS = {"barrier": [1024, 4096, 16384, 65536], "ring": [1024, 4096, 8192, 65536]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--workload", choices=RANKS, default=None)
    parser.add_argument("--ranks", default=None, help="comma-separated")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = []
    for workload in [args.workload] if args.workload else RANKS:
        ranks = [int(n) for n in args.ranks.split(",")] if args.ranks else RANKS[workload]
        rows += [measure(workload, n, repeats=args.repeats, threads=args.threads) for n in ranks]
    show("Replay of jobs that do not fold", rows, as_json=args.json)


if __name__ == "__main__":
    main()
