"""Runs a piece of an ordinary torch program on the virtual GPU, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from typing import Any

PRELUDE = """
import json, os, sys
from prismcore import _core
from prismcore.graph import Graph
from prismcore.launch import standins
from prismcore.profiles.cluster import load_cluster
from prismcore.profiles.device import load_device

standins.load()
profile = load_device("h100")
_core.vgpu_start(0, 1, 8, profile.to_core(), load_cluster("h100-8x").to_core())
import torch

def report():
    return json.loads(_core.vgpu_report())

def finish():
    stats = torch.cuda.memory_stats()
    peaks = (stats.get(f"{kind}_bytes.all.peak", 0) for kind in ("requested", "allocated", "reserved"))
    return Graph(_core.vgpu_finish(*peaks))

def rss():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096

answer = {}
"""


# As ranks leave. Autograd has a thread for each of the 8 GPUs; one that still waits for the GIL when the
# interpreter ends is ended by it, which its C++ frames do not allow: std::terminate().
LEAVE = "sys.stdout.flush(); sys.stderr.flush(); os._exit(0)"


def run_program(body: str, *, leave: str = LEAVE, **environment: str) -> dict[str, Any]:
    """What ``body`` put into ``answer``; a crash fails the test with the program's last lines."""
    program = PRELUDE + textwrap.dedent(body) + f"\nprint('\\n' + json.dumps(answer))\n{leave}\n"
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | environment,
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
