"""Runs a training program and tells of it: its peak of memory, times of iterations, kernels.

    python benchmarks/gpu/measured.py OUT.json [--kernels] -- script.py ARGS

On one real GPU, alone, as torchrun would start it; under `prism collect` on the virtual one. An iteration
ends where the optimizer that stepped first steps again, by an event on the device. The program does without
cuDNN, as on the virtual GPU, so that both take the same kernels. OUT.json is written at each step.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

ALONE = {
    "RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29511",
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",
}


class Watch:
    """What is told of the program so far."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._leader: Any = None
        self._ends: list[torch.cuda.Event] = []

    def stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._leader = self._leader or optimizer
        if optimizer is not self._leader:
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._ends.append(event)

    def write(self, kernels: dict[str, int] | None) -> None:
        torch.cuda.synchronize()
        pairs = zip(self._ends, self._ends[1:], strict=False)
        told = {
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
            "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
            "iteration_ns": [round(a.elapsed_time(b) * 1e6) for a, b in pairs],
            "kernels": kernels,
        }
        beside = self._out.with_suffix(".part")
        beside.write_text(json.dumps(told))
        os.replace(beside, self._out)


def main() -> None:
    at = sys.argv.index("--")
    ours, program = sys.argv[1:at], sys.argv[at + 1 :]
    for key, value in ALONE.items():
        os.environ.setdefault(key, value)
    warnings.simplefilter("ignore")
    torch.backends.cudnn.enabled = False
    torch.backends.cuda.enable_cudnn_sdp(False)
    watch = Watch(Path(ours[0]))
    register_optimizer_step_post_hook(watch.stepped)
    sys.argv[:] = program
    sys.path.insert(0, str(Path(program[0]).parent))
    kernels: Counter[str] | None = None
    if "--kernels" in ours:
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            runpy.run_path(program[0], run_name="__main__")
            torch.cuda.synchronize()
        device = torch.autograd.DeviceType.CUDA
        kernels = Counter(event.name for event in profiler.events() if event.device_type == device)
    else:
        runpy.run_path(program[0], run_name="__main__")
    watch.write(None if kernels is None else dict(kernels))


if __name__ == "__main__":
    main()
