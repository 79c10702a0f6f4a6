"""What an op is called in a trace of torch's profiler, and what its event says.

Names and arguments as torch 2.14 writes them (libkineto, ``output_json.cpp``; ``c10d/ParamCommsUtils.hpp``),
as far as a graph knows them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from prismcore.graph import Communicator, CopyDirection, DataType, Graph, Kernel, OpKind, Reduction

__all__ = ["Names", "call_of", "device_properties", "process_group", "sync_of"]

_CALLS = {OpKind.COPY: "cudaMemcpyAsync", OpKind.SET: "cudaMemsetAsync", OpKind.KERNEL: "cudaLaunchKernel"}
_SYNCS = {
    OpKind.STREAM_SYNC: "cudaStreamSynchronize",
    OpKind.EVENT_SYNC: "cudaEventSynchronize",
    OpKind.DEVICE_SYNC: "cudaDeviceSynchronize",
}
_COPIES = {
    CopyDirection.HOST_TO_DEVICE: "Memcpy HtoD (Pageable -> Device)",
    CopyDirection.DEVICE_TO_HOST: "Memcpy DtoH (Device -> Pageable)",
    CopyDirection.DEVICE_TO_DEVICE: "Memcpy DtoD (Device -> Device)",
    CopyDirection.HOST_TO_HOST: "Memcpy HtoH (Pageable -> Pageable)",
}
#: Kind: NCCL's kernel, torch's call. NCCL makes the others of sends and receives.
_TALK = {
    OpKind.ALL_REDUCE: ("AllReduce", "allreduce"),
    OpKind.ALL_GATHER: ("AllGather", "_allgather_base"),
    OpKind.REDUCE_SCATTER: ("ReduceScatter", "_reduce_scatter_base"),
    OpKind.BROADCAST: ("Broadcast", "broadcast"),
    OpKind.REDUCE: ("Reduce", "reduce"),
    OpKind.ALL_TO_ALL: ("SendRecv", "all_to_all"),
    OpKind.GATHER: ("SendRecv", "gather"),
    OpKind.SCATTER: ("SendRecv", "scatter"),
    OpKind.SEND: ("SendRecv", "send"),
    OpKind.RECV: ("SendRecv", "recv"),
}
_REDUCTIONS = {
    Reduction.SUM: "Sum",
    Reduction.PROD: "Prod",
    Reduction.MAX: "MinMax",
    Reduction.MIN: "MinMax",
    Reduction.AVG: "SumPostDiv",
    Reduction.PREMUL_SUM: "PreMulSum",
}
_TYPES = {
    DataType.INT8: ("Char", "i8", 1),
    DataType.UINT8: ("Byte", "u8", 1),
    DataType.INT32: ("Int", "i32", 4),
    DataType.UINT32: ("UInt32", "u32", 4),
    DataType.INT64: ("Long", "i64", 8),
    DataType.UINT64: ("UInt64", "u64", 8),
    DataType.FLOAT16: ("Half", "f16", 2),
    DataType.FLOAT32: ("Float", "f32", 4),
    DataType.FLOAT64: ("Double", "f64", 8),
    DataType.BFLOAT16: ("BFloat16", "bf16", 2),
    DataType.FLOAT8E4M3: ("Float8_e4m3fn", "f8e4m3", 1),
    DataType.FLOAT8E5M2: ("Float8_e5m2", "f8e5m2", 1),
}
_REDUCING = (OpKind.ALL_REDUCE, OpKind.REDUCE_SCATTER, OpKind.REDUCE)
_GIVES_SHARE = (OpKind.ALL_GATHER, OpKind.GATHER)
_TAKES_SHARE = (OpKind.REDUCE_SCATTER, OpKind.SCATTER)
_LISTED = 30  # of a group's ranks; torch cuts longer lists too


def call_of(kind: OpKind) -> str:
    """The runtime call that launches an op."""
    return "cudaLaunchKernelExC" if kind.is_communication else _CALLS[kind]


def sync_of(kind: OpKind) -> str:
    """The runtime call of a wait of the host."""
    return _SYNCS.get(kind, "cudaStreamSynchronize")


def device_properties(graph: Graph) -> dict[str, Any]:
    """An entry of ``deviceProperties``: the device that was traced, where the graph is an import, else the
    profile's name."""
    note = graph.metadata.get("traced_device")
    if not isinstance(note, dict):
        return {"name": str(graph.metadata.get("device", ""))}
    found = {"name": note.get("name", "")}
    capability = note.get("compute_capability")
    if isinstance(capability, list) and len(capability) == 2:
        found |= {"computeMajor": capability[0], "computeMinor": capability[1]}
    told = (("numSms", "sms"), ("totalGlobalMem", "memory_bytes"))
    return found | {key: note[of] for key, of in told if of in note}


def process_group(communicator: Communicator) -> dict[str, Any]:
    """An entry of ``distributedInfo.pg_config``."""
    return {
        "pg_name": str(communicator.id),
        "pg_desc": communicator.name,
        "backend_config": "cuda:nccl",
        "pg_size": communicator.size,
        "ranks": communicator.members.tolist(),
    }


class Names:
    """Category, name and arguments of device ops, the same ones said once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._kernels: dict[int, tuple[str, str, str]] = {}
        self._groups: dict[int, dict[str, Any]] = {}

    def work(self, kind: OpKind, detail: int, ref: int, size: int) -> tuple[str, str, str]:
        """Of a kernel, copy or set; arguments as the inside of a JSON object."""
        if kind == OpKind.COPY:
            return "gpu_memcpy", _COPIES[CopyDirection(detail)], f'"bytes": {size}'
        if kind == OpKind.SET:
            return "gpu_memset", "Memset (Device)", f'"bytes": {size}'
        if ref not in self._kernels:
            kernel = self._graph.kernel(ref)
            self._kernels[ref] = ("kernel", kernel.name, _inside(_shape(kernel)))
        return self._kernels[ref]

    def talk(
        self,
        parts: Sequence[tuple[OpKind, int, int, int]],
        communicator: Communicator,
        message: tuple[int, int] | None = None,
    ) -> tuple[str, str, str]:
        """Of one kernel of NCCL: (kind, data type, reduction, bytes) of the parts that it does;
        ``message``: places of its ends in the communicator, where it is a single one."""
        kind, number, detail, _ = parts[0]
        dtype, each = DataType(number), 1
        told, short = "Byte", "u8"
        if dtype in _TYPES:
            told, short, each = _TYPES[dtype]
        total = sum(part[3] for part in parts) // each
        share = total // communicator.size
        device, call = _TALK[kind]
        if len({part[0] for part in parts}) > 1 or (len(parts) > 1 and kind in (OpKind.SEND, OpKind.RECV)):
            device, call = "SendRecv", "coalesced"
        name = f"ncclDevKernel_{device}"
        if kind in _REDUCING and device != "SendRecv":
            name += f"_{_REDUCTIONS[Reduction(detail)]}_{short}"
        arguments = {
            "Collective name": call,
            "In msg nelems": share if kind in _GIVES_SHARE else total,
            "Out msg nelems": share if kind in _TAKES_SHARE else total,
            "dtype": told,
            "In split size": "[]",
            "Out split size": "[]",
            **self._group(communicator),
        }
        if message is not None:
            arguments |= {"Src Rank": message[0], "Dst Rank": message[1]}
        return "kernel", name, _inside(arguments)

    def _group(self, communicator: Communicator) -> dict[str, Any]:
        if communicator.id not in self._groups:
            self._groups[communicator.id] = _group(communicator)
        return self._groups[communicator.id]


def _group(communicator: Communicator) -> dict[str, Any]:
    members = communicator.members.tolist()
    said: dict[str, Any] = {
        "Group size": len(members),
        "Process Group Name": str(communicator.id),
        "Process Group Description": communicator.name,
    }
    stride = members[1] - members[0] if len(members) > 1 else 1
    if stride > 0 and members == list(range(members[0], members[0] + stride * len(members), stride)):
        said |= {"Global rank start": members[0], "Global rank stride": stride}
        if len(members) > _LISTED:
            shown = ", ".join(map(str, members[:_LISTED]))
            return said | {"Process Group Ranks": f"[{shown}, ..., {members[-1]}]"}
    return said | {"Process Group Ranks": str(members)}


def _shape(kernel: Kernel) -> dict[str, Any]:
    return {"grid": kernel.grid, "block": kernel.block, "shared memory": kernel.shared_bytes}


def _inside(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments)[1:-1]
