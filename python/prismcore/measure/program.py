"""The program that measures, run by torch: ``python -m prismcore.measure.program --out FILE``.

The same on a real GPU and, by :mod:`prismcore.launch`, on the virtual one. Writes one JSON object (``FILE``)
and, where ``--traces`` names a folder, traces of torch's profiler there.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import prismcore
from prismcore.launch.processes import die_with_parent
from prismcore.measure.copies import copies
from prismcore.measure.host import host_calls
from prismcore.measure.points import Call, Point, points
from prismcore.measure.shapes import LayerShape, parse_shape
from prismcore.measure.timing import Cover, timed

__all__ = ["main", "write_report"]

PROFILED = 5  # launches of each call under the profiler
_RESERVE = 0.06  # of the time, to end in


class _Program:
    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._deadline = time.monotonic() + args.seconds * (1 - _RESERVE)
        self._slowest_s = 0.0
        self.report: dict[str, Any] = {
            "torch": torch.__version__,
            "shapes": [shape.text() for shape in args.shape],
            "points": [],
            "copies": [],
            "host": {},
            "dropped": [],
            "traces": [],
            "notes": [],
        }

    def run(self) -> None:
        self.report["device"] = _facts()
        if torch.distributed.is_nccl_available():  # a group of this process: what its calls cost the host
            store = torch.distributed.HashStore()
            torch.distributed.init_process_group("nccl", store=store, rank=0, world_size=1)
        cover = Cover()
        self.report["host"] = host_calls(self._args.host_repeats)
        for entry in copies(cover, self._args.repeats):
            self.report["copies"].append(entry)
            if self._is_late():
                self._drop("larger copies")
                break
        for number, shape in enumerate(self._args.shape):
            self._shape(number, shape, cover)
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()

    def _shape(self, number: int, shape: LayerShape, cover: Cover) -> None:
        torch.backends.cuda.matmul.allow_tf32 = shape.dtype == "tf32"
        done: list[Point] = []
        for point in points(shape):
            label = f"{shape.text()}: {point.name}"
            if self._is_late():
                self._drop(label)
                continue
            begin = time.monotonic()
            try:
                for name, found in self._point(point, cover):
                    self.report["points"].append(
                        {"shape": number, "point": point.name, "family": point.family, "call": name, **found}
                    )
                done.append(point)
            except torch.OutOfMemoryError:
                self._drop(label, "does not fit into the device's free memory")
            except RuntimeError as error:  # kernels that this device has not, such as flash attention
                self._drop(label, str(error).splitlines()[0][:200])
            _forget()
            self._slowest_s = max(self._slowest_s, time.monotonic() - begin)
        if self._args.traces is not None and done:
            self._trace(number, done)

    def _point(self, point: Point, cover: Cover) -> Iterator[tuple[str, dict[str, Any]]]:
        calls = point.make()
        for name, call in calls.items():
            found = timed(call, cover, repeats=self._args.repeats)
            yield (
                name,
                {
                    "durations_ns": found.durations_ns,
                    "covered": found.covered,
                    "product": point.product,
                },
            )

    def _trace(self, number: int, done: list[Point]) -> None:
        """Kernel by kernel, with the shapes of what launched them."""
        from torch.profiler import ProfilerActivity, profile

        path = self._args.traces / f"shape{number}.json"
        activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
        with profile(activities=activities, record_shapes=True) as profiler:
            for point in done:
                try:
                    self._launch(point.make())
                except torch.OutOfMemoryError:
                    self._drop(f"{point.name} under the profiler", "does not fit")
                _forget()
        profiler.export_chrome_trace(str(path))
        self.report["traces"].append(str(path))

    def _launch(self, calls: dict[str, Call]) -> None:
        for call in calls.values():
            for _ in range(PROFILED):
                call()
        torch.cuda.synchronize()

    def _is_late(self) -> bool:
        return bool(time.monotonic() + self._slowest_s > self._deadline)

    def _drop(self, what: str, why: str = "no time left") -> None:
        self.report["dropped"].append({"point": what, "why": why})


def _forget() -> None:
    gc.collect()
    torch.cuda.empty_cache()


def _facts() -> dict[str, Any]:
    """Of the device, as torch tells them; what this torch does not tell is left out."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    told = {
        "sms": "multi_processor_count",
        "memory_bytes": "total_memory",
        "l2_bytes": "L2_cache_size",
        "shared_per_block_optin": "shared_memory_per_block_optin",
        "shared_per_sm": "shared_memory_per_multiprocessor",
        "clock_khz": "clock_rate",
        "memory_clock_khz": "memory_clock_rate",
        "memory_bus_bits": "memory_bus_width",
    }
    free, _ = torch.cuda.mem_get_info()
    facts = {key: int(getattr(properties, name, 0)) for key, name in told.items()}
    return {
        "name": properties.name,
        "compute_capability": [properties.major, properties.minor],
        **{key: value for key, value in facts.items() if value > 0},
        "free_bytes": free,
        "devices": torch.cuda.device_count(),
    }


def _failure(error: BaseException) -> dict[str, str]:
    kind = "out_of_memory" if isinstance(error, torch.OutOfMemoryError) else "device"
    return {"kind": kind, "text": str(error).splitlines()[0] if str(error) else type(error).__name__}


def write_report(path: Path, report: dict[str, Any]) -> None:
    """The file is whole or not there."""
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(report), encoding="utf-8")
    os.replace(beside, path)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m prismcore.measure.program")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--traces", type=Path)
    parser.add_argument("--index", type=int, default=0)
    parser.add_argument("--parent", type=int)
    parser.add_argument("--seconds", type=float, default=270.0)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--host-repeats", type=int, default=25)
    parser.add_argument("--shape", type=parse_shape, action="append", default=[])
    args = parser.parse_args()
    if args.parent is not None:
        die_with_parent(args.parent)
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if args.index >= found:
        text = f"torch {torch.__version__} finds {found}" + (f", {args.index} was asked" if found else "")
        write_report(args.out, {"error": {"kind": "no_device", "text": text}})
        return 1
    program = _Program(args)
    try:
        torch.cuda.set_device(args.index)
        program.run()
    except RuntimeError as error:  # torch's: the device is taken, broken, or has no memory left
        write_report(args.out, {"error": _failure(error)})
        return 1
    write_report(args.out, program.report)
    prismcore.mark_iteration()
    return 0


if __name__ == "__main__":
    sys.exit(main())
