"""Events of torch's profiler, written by hand; times in us."""

import json

from prismcore.traces.kineto import read_kineto_set, stitch_kineto

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECEIVE = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def event(category, name, ts, dur, *, tid=1, **args):
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 1,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": args,
    }


def call(name, ts, dur, *, tid=1, **args):
    return event("cuda_runtime", name, ts, dur, tid=tid, **args)


def launch(number, ts, begin, dur, *, name="gemm", stream=7, tid=1, by="cudaLaunchKernel", length=5, **args):
    """A call and its kernel."""
    return [
        call(by, ts, length, tid=tid, correlation=number),
        event("kernel", name, begin, dur, tid=stream, correlation=number, device=0, stream=stream, **args),
    ]


def group(name, members, **more):
    """Arguments of a kernel of NCCL from torch 2.4 on."""
    return {
        "Process Group Name": name,
        "Process Group Ranks": str(list(members)),
        "Group size": len(members),
        **more,
    }


def write(folder, of_ranks, **info):
    paths = []
    for rank, events in of_ranks.items():
        path = folder / f"rank{rank}_trace.json"
        told = {"rank": rank, "world_size": max(of_ranks) + 1} | info
        path.write_text(json.dumps({"distributedInfo": told, "traceEvents": events}))
        paths.append(path)
    return paths


def imported(folder, of_ranks, **info):
    """``of_ranks``: the events of each rank."""
    return stitch_kineto(read_kineto_set(write(folder, of_ranks, **info)))


def met(traces):
    """Ranks of each meeting of several, in order of their rows."""
    found = {}
    for row, (meeting, size) in enumerate(zip(traces.meetings.id, traces.meetings.size, strict=True)):
        if size > 1:
            found.setdefault(int(meeting), []).append(int(traces.rows.rank[row]))
    return [tuple(ranks) for ranks in found.values()]
