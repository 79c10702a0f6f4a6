"""Two 8-rank jobs as torch's profiler saw them (docs/accuracy.md): steps, collectives, host time left out."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from results import AbsentError, Row, row

import prismcore
from prismcore.graph import Graph, OpKind
from prismcore.replay import ReplayResult
from prismcore.stitch.timing import Timing
from prismcore.stragglers.what_if import WhatIf
from prismcore.traces.kineto import MeasuredTraces, read_kineto_set, stitch_kineto
from prismcore.traces.kineto_file import KinetoTrace
from prismcore.traces.kineto_ops import steps_of

Ints = npt.NDArray[np.int64]

HOST = 65535  # stream of a timeline


def rows(data: Path) -> list[Row]:
    """Per job: each rank's step, ends of collectives, and the step where no host takes time."""
    tp8 = sorted((data / "megatron_tp8").glob("kineto_rank*.json.gz"))
    dlrm = data / "dlrm_8" / "dlrm_kineto.tar.gz"
    if len(tp8) != 8 or not dlrm.exists():
        absent = dlrm if len(tp8) == 8 else data / "megatron_tp8" / "kineto_rank{0..7}.json.gz"
        raise AbsentError(f"{absent.relative_to(data)} is not there")
    files = read_kineto_set(tp8)
    out = job_rows("Megatron TP 8", files) + layer_rows("Megatron TP 8", files)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(dlrm) as archive:
            archive.extractall(folder, filter="data")
        return out + job_rows("DLRM", read_kineto_set(sorted(Path(folder).glob("dlrm_kineto/worker*.json"))))


def job_rows(name: str, files: Sequence[KinetoTrace]) -> list[Row]:
    """Of traces of one step."""
    traces = stitch_kineto(files)
    graph = traces.graph()
    replayed = prismcore.replay(graph, timeline_ranks=graph.ranks.tolist())
    bare = WhatIf(graph).measured()
    spans = np.array([steps_of(trace)[0].end_ns - steps_of(trace)[0].start_ns for trace in files])
    mean = statistics.fmean(spans.tolist())
    ends = collective_ends(graph, traces, replayed)
    return [
        row(
            name,
            "consistency: step of each rank, with its own durations and host time",
            pairs(host_ends(replayed) - marks(traces) + spans, spans),
            provenance=replayed.provenance,
            note=f"no prediction; steps of {spans.min() / 1e6:.1f} to {spans.max() / 1e6:.1f} ms",
            covers={"prediction": "own steps", "source": "kineto"},
        ),
        row(
            name,
            "consistency: end of each collective on each rank",
            pairs(*(of / 1e3 for of in ends)),
            provenance=replayed.provenance,
            note="no prediction",
            unit="us",
        ),
        row(
            name,
            "host time left out: step of each rank",
            pairs(bare.iteration_end_ns[:, 0], spans),
            provenance=replayed.provenance,
            note=f"{bare.iteration_time_ns[0] / 1e6:.1f} ms of {mean / 1e6:.1f} (mean of ranks)",
        ),
    ]


def layer_rows(name: str, files: Sequence[KinetoTrace]) -> list[Row]:
    """Odd layers from even ones: what one step of a job of equal layers tells of what it has not seen."""
    traces = stitch_kineto(files)
    layers = layers_of(traces)
    even, odd = layers[:, 1::2], layers[:, 0::2]  # the first of all is not like the others
    timing = Timing(gap_ns=traces.timing.gap_ns.copy(), duration_ns=traces.timing.duration_ns.copy())
    for column in (timing.gap_ns, timing.duration_ns):
        column[odd] = np.rint(column[even].mean(axis=1, keepdims=True)).astype(np.int64)
    graph = dataclasses.replace(traces, timing=timing).graph()
    predicted = prismcore.replay(graph, timeline_ranks=graph.ranks.tolist())
    spans = np.array([steps_of(trace)[0].end_ns - steps_of(trace)[0].start_ns for trace in files])
    on_device = np.where(traces.rows.lane > 0, traces.timing.duration_ns, 0)[layers].sum(axis=2)
    by_even = np.broadcast_to(on_device[:, 1::2].mean(axis=1, keepdims=True), on_device[:, 0::2].shape)
    return [
        row(
            name,
            "prediction: work of the device in each odd layer, from the mean of the even ones",
            pairs(by_even.ravel(), on_device[:, 0::2].ravel()),
            provenance=predicted.provenance,
            note=f"{odd.shape[1]} layers on each rank, {on_device.mean() / 1e6:.2f} ms; "
            "kernels and transfers",
        ),
        row(
            name,
            "prediction: step of each rank, odd layers with durations and host time of the even ones",
            pairs(host_ends(predicted) - marks(traces) + spans, spans),
            provenance=predicted.provenance,
            note="half of the step is known; pauses of the host do not come with layers",
        ),
    ]


def layers_of(traces: MeasuredTraces) -> Ints:
    """Rows of the layers but the first; shape [ranks, layers, rows of a layer]. A layer ends with the
    second of its all-reduces; one of the embedding comes before all, three small ones behind."""
    rows, kind = traces.rows, traces.ops.kind
    found = []
    for rank in np.unique(rows.rank):
        reduces = np.flatnonzero((rows.rank == rank) & (kind >= OpKind.ALL_REDUCE))
        large = reduces[traces.ops.bytes[reduces] == 64 << 20]
        ends = large[2::2]
        found.append([np.arange(before + 1, end + 1) for before, end in itertools.pairwise(ends)])
    return np.array(found)


def pairs(predicted: npt.NDArray, true: npt.NDArray) -> list[tuple[float, float]]:
    return list(zip(predicted.tolist(), true.tolist(), strict=True))


def marks(traces: MeasuredTraces) -> Ints:
    """When the profiler's step ended on each rank, on the clock of the replay; shape [ranks]."""
    return traces.rows.start_ns[traces.ops.kind == OpKind.MARK]


def host_ends(replayed: ReplayResult) -> Ints:
    """When each rank's host had come to its end; shape [ranks]."""
    timeline = replayed.timeline
    on_host = timeline.stream == HOST
    return np.array([timeline.end_ns[on_host & (timeline.rank == r)].max() for r in replayed.ranks])


def collective_ends(graph: Graph, traces: MeasuredTraces, replayed: ReplayResult) -> tuple[Ints, Ints]:
    """Replayed and measured, by rank, stream and order; shape [collectives of all ranks]."""
    timeline = replayed.timeline
    stored = graph.blocks(np.arange(graph.num_blocks, dtype=np.uint32))
    talks = stored["kind"][timeline.op] >= OpKind.ALL_REDUCE
    rows, kind = traces.rows, traces.ops.kind
    measured = np.flatnonzero(kind >= OpKind.ALL_REDUCE)
    by_replay = np.lexsort((timeline.start_ns[talks], timeline.stream[talks], timeline.rank[talks]))
    by_trace = measured[np.lexsort((measured, rows.lane[measured], rows.rank[measured]))]
    return timeline.end_ns[talks][by_replay], rows.end_ns[by_trace]
