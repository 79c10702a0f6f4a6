"""Runs a piece of a torch program as one rank of a large job, in a process of its own, on the virtual GPU.

The processes are forked from one that has imported torch, as `prism collect` does it.
"""

import atexit
import functools
import json
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

PARENT = """
import ctypes, json, os, signal, sys
from pathlib import Path
import prismcore
from prismcore.launch import standins
os.environ["TORCH_NCCL_ENABLE_MONITORING"] = "0"
standins.load()
import torch
import torch.distributed
import prismcore.launch.store
for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if child == 0:
        signal.alarm(300)
        log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        status = 1
        try:
            exec(compile(job["program"], "<rank>", "exec"), {"__name__": "__main__"})
            status = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(status)
    print(os.waitpid(child, 0)[1], flush=True)
"""

PRELUDE = """
import ctypes, json
from pathlib import Path
import prismcore
import torch
import torch.distributed as dist
from prismcore import _core
from prismcore.graph import Graph
from prismcore.launch.splits import announce_splits
from prismcore.launch.store import GhostStore
from prismcore.profiles.cluster import default_cluster_for, load_cluster
from prismcore.profiles.device import load_device

RANK, WORLD = {rank}, {world}
door = ctypes.CDLL(str(Path(prismcore.__file__).parent / "lib/libprism_nccl.so"))
cluster = load_cluster(default_cluster_for("{device}")).to_core()
_core.vgpu_start(RANK, WORLD, 8, load_device("{device}").to_core(), cluster)
torch.cuda.set_device(RANK % 8)


def init(eager=False):
    announce_splits(door)
    device = torch.device("cuda", RANK % 8) if eager else None
    init.store = GhostStore(WORLD)  # torch keeps no reference
    dist.init_process_group("nccl", store=init.store, rank=RANK, world_size=WORLD, device_id=device)


def on_device(values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype).cuda()


def recorded():
    # The rank's communication: kind, whether a part of the launch follows, communicator, its size,
    # peer, bytes. Members that nobody told are any ranks, this one at its place.
    torch.cuda.synchronize()
    open_ = _core.vgpu_communicators()
    for slot, _, size, position, _ in open_:
        _core.vgpu_set_members(slot, [(RANK - position + i) % WORLD for i in range(size)])
    graph = Graph(_core.vgpu_finish(0, 0, 0))
    rows = []
    for op in graph.ops(RANK):
        kind = _core.op_kind_name(int(op["kind"]))
        if int(op["kind"]) >= 32:
            communicator = graph.communicator(int(graph.rank(RANK).bindings[int(op["ref"])]["communicator"]))
            rows.append([kind, bool(op["flags"] & 4), communicator.name, communicator.size,
                         int(op["peer"]), int(op["bytes"])])
    return rows


def kernels():
    torch.cuda.synchronize()
    graph = Graph(_core.vgpu_finish(0, 0, 0))
    rows = []
    for op in graph.ops(RANK):
        if _core.op_kind_name(int(op["kind"])) == "kernel":
            kernel = graph.kernel(int(op["ref"]))
            gemm = kernel.gemm
            if gemm is not None:
                rows.append([kernel.name, kernel.dtype.name.lower(), kernel.transposes,
                             [gemm.m, gemm.n, gemm.k, gemm.batch]])
    return rows


answer = {{}}
"""


@functools.cache
def parent() -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.communicate)
    return process


def run_rank(body: str, rank: int = 0, world: int = 1, device: str = "h100") -> dict[str, Any]:
    """What ``body`` put into the dictionary ``answer``."""
    with tempfile.TemporaryDirectory() as folder:
        log, result = Path(folder, "log"), Path(folder, "answer")
        program = PRELUDE.format(rank=rank, world=world, device=device) + textwrap.dedent(body)
        program += f"\nPath({str(result)!r}).write_text(json.dumps(answer))\n"
        forked = parent()
        assert forked.stdin is not None
        assert forked.stdout is not None
        forked.stdin.write(json.dumps({"program": program, "log": str(log)}) + "\n")
        forked.stdin.flush()
        status = int(forked.stdout.readline())
        assert status == 0, log.read_text()[-4000:]
        answer: dict[str, Any] = json.loads(result.read_text())
    return answer
