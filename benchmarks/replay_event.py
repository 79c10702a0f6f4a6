"""Nanoseconds per replayed op, and how they grow with the ranks.

A job of the shape of Megatron's (tensor 8, pipeline 8, the rest data parallel; 16 micro-batches, one
forward one backward; some 18 ops for each communication op, two iterations), from 64 ranks on. Blocks
are stored once for all ranks, so a rank costs what its communication and its streams' meetings cost.

    python benchmarks/replay_event.py [--json] [--ranks LIST] [--repeats N]
"""

from __future__ import annotations

import argparse

from replay_measure import measure, show


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--ranks", default="64,512,4096,8192,65536", help="comma-separated multiples of 64")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    sizes = [int(n) for n in args.ranks.split(",")]
    rows = [measure("training", n, repeats=args.repeats, threads=args.threads) for n in sizes]
    show("Replay of a training job", rows, as_json=args.json)
    if not args.json:
        growth = rows[-1].ns_per_event / rows[0].ns_per_event
        print(f"ns per event at {sizes[-1]} ranks: {growth:.2f} times that at {sizes[0]}")


if __name__ == "__main__":
    main()
