"""Samples for :func:`prismcore.calibrate.calibrate` from what the measuring program left."""

from __future__ import annotations

from typing import Any

import numpy as np

from prismcore.calibrate import Samples, merged_samples
from prismcore.calibrate.from_graph import samples_of_graph
from prismcore.calibrate.from_traces import samples_of_traces
from prismcore.calibrate.samples import CollectiveKey, CopyKey, FoundDevice, Ints
from prismcore.errors import TraceError
from prismcore.graph import CopyDirection, DataType, Gemm, Graph, Kernel, OpKind, Provenance
from prismcore.measure.shapes import parse_shape
from prismcore.traces.kineto import read_kineto_set

__all__ = ["samples_of_report"]

_SIMULATED = (Provenance.MEASURED, Provenance.TABLE, Provenance.MODEL, Provenance.UNKNOWN)


def samples_of_report(report: dict[str, Any], graph: Graph | None) -> Samples:
    """Kernels from the virtual GPU's record (``graph``) or from traces of torch's profiler, one by one; where
    the profiler saw none, products alone, by events. Copies and host figures by events."""
    samples = _of_graph(graph) if graph is not None else _of_traces(report)
    device = report["device"]
    samples.source = f"torch {report['torch']}"
    samples.kind = "measurements (prism profile) by"
    samples.host_profiled = False
    samples.ranks = 1
    samples.device = FoundDevice(
        name=device["name"],
        compute_capability=(device["compute_capability"][0], device["compute_capability"][1]),
        sms=device["sms"],
        memory_bytes=device["memory_bytes"],
    )
    samples.collectives = {
        CollectiveKey(
            kind=OpKind[entry["kind"].upper()],
            bytes=entry["bytes"],
            members=tuple(range(entry["ranks"])),
        ): _ints(entry["durations_ns"])
        for entry in report.get("collectives", ())
    }
    samples.collectives_left_out = {}
    samples.copies = {
        CopyKey(
            direction=CopyDirection[entry["direction"].upper()],
            bytes=entry["bytes"],
            pageable=entry["pageable"],
        ): _ints(entry["durations_ns"])
        for entry in report["copies"]
        if entry["covered"] or entry["pageable"]
    }
    samples.host = {
        figure: _ints(durations)
        for figure, durations in report["host"].items()
        if durations and figure != "bare_launch_ns"
    }
    return samples


def _of_graph(graph: Graph) -> Samples:
    samples = samples_of_graph(graph, "the virtual GPU", of=_SIMULATED)
    samples.warnings = []
    return samples


def _of_traces(report: dict[str, Any]) -> Samples:
    parts = []
    lost: list[str] = []
    for path in report["traces"]:
        try:
            parts.append(samples_of_traces(read_kineto_set([path])))
        except TraceError as error:
            lost.append(str(error))
    if parts:
        samples = merged_samples(parts)
        samples.warnings = []
    else:
        samples = Samples(source="", ranks=1, kernels=_products(report))
        why = f" ({lost[0]})" if lost else ""
        samples.warnings = [
            "torch's profiler told no kernel of the device (CUPTI may be refused to this user): the table "
            f"holds products alone, timed by events{why}"
        ]
    return samples


def _products(report: dict[str, Any]) -> dict[Kernel, Ints]:
    """Calls that are one product each: its dimensions name its row, whatever the library calls its kernel."""
    found: dict[Kernel, Ints] = {}
    for entry in report["points"]:
        if entry["product"] is None or not entry["covered"]:
            continue
        m, n, k, batch = entry["product"]
        dtype = parse_shape(report["shapes"][entry["shape"]]).dtype
        kernel = Kernel(
            name="gemm:tf32" if dtype == "tf32" else "gemm",
            dtype=DataType["FLOAT32" if dtype == "tf32" else dtype.upper()],
            gemm=Gemm(m=m, n=n, k=k, batch=batch),
        )
        found[kernel] = _ints(entry["durations_ns"])
    return found


def _ints(values: list[int]) -> Ints:
    return np.array(values, dtype=np.int64)
