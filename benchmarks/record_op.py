"""Cost of recording one op: what a rank pays for each kernel, event, allocation and collective.

Feeds ready-made ops to the recorder in C++ and times the loop. Repeated blocks are looked up and
dropped again, as in steady training; new blocks are kept. Interning of names, cost models and clocks
are not in it.

    python benchmarks/record_op.py [--json] [--ops N] [--repeats N]
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass

import numpy as np

from prismcore import _core
from prismcore.graph import OP_DTYPE, DataType, OpArray, OpKind

KINDS = (OpKind.KERNEL, OpKind.ALLOCATE, OpKind.KERNEL, OpKind.EVENT_RECORD, OpKind.EVENT_WAIT, OpKind.FREE)


@dataclass(kw_only=True, slots=True)
class Row:
    """One case: the best and the median of some repeats."""

    case: str
    ops: int
    stored_ops: int
    best_ns_per_op: float
    median_ns_per_op: float
    finish_ms: float


def make_ops(count: int, block: int, *, new: bool, distinct: int = 16) -> OpArray:
    """`count` ops in blocks of `block`, each closed by an all-reduce."""
    ops = np.zeros(count // block * block, dtype=OP_DTYPE)
    ops["dtype"] = DataType.NONE
    ops["kind"] = np.resize(np.array(KINDS, dtype=np.uint8), block)[np.arange(len(ops)) % block]
    ops["kind"][block - 1 :: block] = OpKind.ALL_REDUCE
    number = np.arange(len(ops)) // block
    ops["duration_ns"] = 1_000 + (number if new else number % distinct)
    ops["bytes"] = 1 << 20
    return ops


def run(case: str, ops: OpArray, repeats: int) -> Row:
    raw = ops.view(np.uint8)
    times, finishes, stored = [], [], 0
    for _ in range(repeats):
        recorder = _core.Recorder(0, 1)
        recorder.kernel("kernel", (1, 1, 1), (1, 1, 1))
        recorder.set_members(recorder.add_communicator("self", 1, 0), np.zeros(1, dtype=np.uint32))
        start = time.perf_counter_ns()
        recorder.append_many(raw)
        end = time.perf_counter_ns()
        stored = recorder.finish().num_ops
        times.append((end - start) / len(ops))
        finishes.append((time.perf_counter_ns() - end) / 1e6)
    return Row(
        case=case,
        ops=len(ops),
        stored_ops=stored,
        best_ns_per_op=round(min(times), 2),
        median_ns_per_op=round(float(np.median(times)), 2),
        finish_ms=round(min(finishes), 2),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="machine output")
    parser.add_argument("--ops", type=int, default=1_000_000, help="ops of a case")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    rows = [
        run(
            f"{'new' if new else 'repeated'} blocks of {block} ops",
            make_ops(options.ops, block, new=new),
            options.repeats,
        )
        for new in (False, True)
        for block in (120, 12, 3)
    ]
    if options.json:
        print(json.dumps({"benchmark": "record_op", "rows": [asdict(row) for row in rows]}))
        return
    print(f"{'case':28} {'ops':>9} {'stored':>9} {'best ns/op':>11} {'median':>8} {'finish ms':>10}")
    for row in rows:
        print(
            f"{row.case:28} {row.ops:9} {row.stored_ops:9} {row.best_ns_per_op:11.2f} "
            f"{row.median_ns_per_op:8.2f} {row.finish_ms:10.2f}"
        )


if __name__ == "__main__":
    main()
