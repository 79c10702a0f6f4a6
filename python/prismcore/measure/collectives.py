"""Collectives of all GPUs of a machine by size, run by torch: one process a GPU, as torchrun starts them.

``python -m prismcore.measure.collectives --out FILE``; rank 0 writes the JSON list.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

import prismcore
from prismcore.launch.processes import die_with_parent
from prismcore.measure.points import Call
from prismcore.measure.program import write_report
from prismcore.measure.timing import Cover, elapsed_ns

SIZES: Final = tuple(1 << power for power in range(12, 31, 2))  # 4 KiB to 1 GiB
KINDS: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
_COVERS: Final = 2
_IN_A_ROW_BYTES: Final = 1 << 26  # above, a call is measured alone


def _call(kind: str, size: int) -> Call:
    """``size``: of the larger of a rank's two buffers, bytes."""
    world = dist.get_world_size()
    whole = torch.empty(size // 2, dtype=torch.bfloat16, device="cuda").zero_()
    part = whole[: whole.numel() // world]
    if kind == "all_reduce":
        return lambda: dist.all_reduce(whole)
    if kind == "all_gather":
        return lambda: dist.all_gather_into_tensor(whole, part)
    if kind == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(part, whole)
    other = torch.empty_like(whole)
    return lambda: dist.all_to_all_single(other, whole)


def _timed(call: Call, cover: Cover, size: int, repeats: int) -> list[int]:
    """ns of a call, of the rank that waited least. Every rank makes the same calls, so nothing is adapted."""
    inner = 10 if size <= _IN_A_ROW_BYTES else 1
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    found = []
    for _ in range(repeats + 2):
        dist.barrier()
        cover(_COVERS)
        begin.record()
        for _ in range(inner):
            call()
        end.record()
        torch.cuda.synchronize()
        found.append(elapsed_ns(begin, end) / inner)
    least = torch.tensor(found[2:], dtype=torch.float32, device="cuda")
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    return [round(ns) for ns in least.tolist()]


def _all(seconds: float, repeats: int) -> Iterator[dict[str, Any]]:
    """Small sizes first; ends on all ranks alike, when rank 0 has no time left."""
    deadline = time.monotonic() + seconds
    cover = Cover()
    world = dist.get_world_size()
    free, _ = torch.cuda.mem_get_info()
    for size in SIZES:
        for kind in KINDS:
            late = torch.tensor([int(time.monotonic() > deadline or 4 * size > free)], device="cuda")
            dist.broadcast(late, 0)
            if int(late.item()):
                return
            size_of = size // (2 * world) * 2 * world
            durations = _timed(_call(kind, size_of), cover, size_of, repeats)
            yield {"kind": kind, "bytes": size_of, "ranks": world, "durations_ns": durations}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m prismcore.measure.collectives")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parent", type=int)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    if args.parent is not None:
        die_with_parent(args.parent)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    found = list(_all(args.seconds, args.repeats))
    if dist.get_rank() == 0:
        write_report(args.out, {"collectives": found})
    dist.destroy_process_group()
    prismcore.mark_iteration()
    return 0


if __name__ == "__main__":
    sys.exit(main())
