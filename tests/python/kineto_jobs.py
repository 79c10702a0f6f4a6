"""Small data-parallel jobs that exist only on paper: times by a plain max-plus evaluation, and as files of
torch's profiler.

The oracle of tests/python/test_traces_kineto.py: Python loops over ops, no code of the package.
"""

import json
from dataclasses import dataclass, field

COMPUTE, COMM = 7, 24


@dataclass
class Layer:
    """Of one rank: a kernel, then, where ``reduce`` is set, an all-reduce that the next kernel waits for."""

    gap: int  # host time before the launch, ns
    call: int  # of the launch itself
    kernel: int
    reduce: int | None = None
    sync: bool = False  # the host waits for the compute stream behind it


@dataclass
class Rank:
    steps: list[list[Layer]]
    late: int = 0  # begins its first step so much later
    events: list[dict] = field(default_factory=list)
    host: int = 0
    compute: int = 0
    comm: int = 0
    marks: list[int] = field(default_factory=list)  # when host and streams had come to the end of each step


def _add(rank, category, name, span, thread, **args):
    begin, end = span
    event = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread}
    event |= {"ts": begin, "dur": end - begin, "args": args}
    rank.events.append(event)


def run(ranks, factors=None):
    """Fills events and marks; times are ns from 0. ``factors``: of the kernels of each rank."""
    factors = factors or [1] * len(ranks)
    number = 0
    for rank in ranks:
        rank.host = rank.late
        rank.compute = rank.comm = 0
        rank.events, rank.marks = [], []
    for step in range(len(ranks[0].steps)):
        begins = [rank.host for rank in ranks]
        for layers in zip(*(rank.steps[step] for rank in ranks), strict=True):
            for rank, layer, factor in zip(ranks, layers, factors, strict=True):
                number += 1
                call = rank.host + layer.gap
                rank.host = call + layer.call
                begin = max(rank.host, rank.compute)
                rank.compute = begin + layer.kernel * factor
                _add(rank, "cuda_runtime", "cudaLaunchKernel", (call, rank.host), 1, correlation=number)
                _add(rank, "kernel", f"gemm_{layer.kernel % 3}", (begin, rank.compute), COMPUTE,
                     correlation=number, device=0, stream=COMPUTE)  # fmt: skip
            if layers[0].reduce is not None:
                number += 1
                arrivals = []
                for rank in ranks:
                    call, rank.host = rank.host, rank.host + 1000
                    arrivals.append(max(rank.host, rank.compute, rank.comm))
                    _add(
                        rank, "cuda_runtime", "cudaLaunchKernelExC", (call, rank.host), 1, correlation=number
                    )
                end = max(arrivals) + layers[0].reduce
                for rank, arrival in zip(ranks, arrivals, strict=True):
                    rank.comm = rank.compute = end  # the next kernel waits
                    _add(rank, "kernel", "ncclDevKernel_AllReduce_Sum_f16_RING_LL", (arrival, end),
                         COMM, correlation=number, device=0, stream=COMM)  # fmt: skip
                    _add(rank, "cuda_runtime", "cudaStreamWaitEvent", (rank.host, rank.host), 1)
            for rank, layer in zip(ranks, layers, strict=True):
                if layer.sync:
                    call, rank.host = rank.host, max(rank.host, rank.compute)
                    _add(rank, "cuda_runtime", "cudaStreamSynchronize", (call, rank.host), 1)
        for rank, begin in zip(ranks, begins, strict=True):
            _add(rank, "user_annotation", f"ProfilerStep#{step + 2}", (begin, rank.host), 1)
            rank.marks.append(max(rank.host, rank.compute, rank.comm))


def write(folder, ranks, *, clock_ns=0, offsets=None):
    """One file a rank; microseconds with three decimals, as torch writes them."""
    paths = []
    for number, rank in enumerate(ranks):
        off = clock_ns + (offsets[number] if offsets else 0)
        lines = []
        for event in rank.events:
            ts, dur = event["ts"] + off, event["dur"]
            text = json.dumps({key: value for key, value in event.items() if key not in ("ts", "dur")})[:-1]
            lines.append(
                f'{text}, "ts": {ts // 1000}.{ts % 1000:03d}, "dur": {dur // 1000}.{dur % 1000:03d}}}'
            )
        info = json.dumps({"backend": "nccl", "rank": number, "world_size": len(ranks)})
        path = folder / f"rank{number}_trace.json"
        path.write_text(
            f'{{"schemaVersion": 1, "distributedInfo": {info}, "traceEvents": [{",".join(lines)}]}}'
        )
        paths.append(path)
    return paths
