"""Runs a piece of a torch program as one rank of a large job, in a process of its own, on the virtual GPU."""

import json
import subprocess
import sys
import textwrap
from typing import Any

PRELUDE = """
import ctypes, json, os, sys
from pathlib import Path
import prismcore
from prismcore import _core
from prismcore.graph import Graph
from prismcore.launch import standins
from prismcore.launch.splits import announce_splits
from prismcore.profiles.cluster import default_cluster_for, load_cluster
from prismcore.profiles.device import load_device

RANK, WORLD = {rank}, {world}
os.environ["TORCH_NCCL_ENABLE_MONITORING"] = "0"
standins.load()
door = ctypes.CDLL(str(Path(prismcore.__file__).parent / "lib/libprism_nccl.so"), ctypes.RTLD_GLOBAL)
cluster = load_cluster(default_cluster_for("{device}")).to_core()
_core.vgpu_start(RANK, WORLD, 8, load_device("{device}").to_core(), cluster)
import torch
import torch.distributed as dist
from prismcore.launch.store import GhostStore
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


def run_rank(body: str, rank: int = 0, world: int = 1, device: str = "h100") -> dict[str, Any]:
    """What ``body`` put into the dictionary ``answer``."""
    script = PRELUDE.format(rank=rank, world=world, device=device)
    script += textwrap.dedent(body) + "\nprint(); print(json.dumps(answer), flush=True)\nos._exit(0)\n"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
