"""What traces that ``prism export kineto`` wrote say of where they come from; traces of a run say nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from prismcore.graph import Provenance
from prismcore.graph.origin import MARK, PROVENANCE, from_mark, provenance_named
from prismcore.stitch.rows import Ints
from prismcore.traces.kineto_device import told_device
from prismcore.traces.kineto_file import KinetoTrace
from prismcore.traces.kineto_ops import HOST
from prismcore.traces.kineto_rows import RankRows

__all__ = ["graph_origin", "provenance_of"]


def graph_origin(traces: Sequence[KinetoTrace], steps: Sequence[int], warnings: list[str]) -> dict[str, Any]:
    """Metadata: of traces of a run the device (``traced_device``); of exported ones what they were made of
    as well, and what was noted of that graph."""
    found: dict[str, Any] = {}
    for trace in traces:
        found = from_mark(trace.header.get(MARK)) | found
        told = (provenance_named(of.get(PROVENANCE)) for of in trace.details.values())
        if not found and any(source is not None for source in told):
            found = from_mark({})
    if found and steps[0] != 0:  # the set-up is not in it
        found.pop("warmup_iterations", None)
    device = told_device(traces, warnings)
    if device is not None and (not found or len(device) > 1):  # an export's name alone is ``device``
        found["traced_device"] = device
    return found


def provenance_of(parts: Sequence[RankRows]) -> Ints | None:
    """Of each row; None: all were measured. A device op of an exported trace that does not say where its
    duration comes from is ``UNKNOWN``."""
    rows = [_of_rank(part) for part in parts]
    if all((of == Provenance.MEASURED).all() for of in rows):
        return None
    return np.concatenate(rows)


def _of_rank(part: RankRows) -> Ints:
    trace = part.trace
    marked = bool(from_mark(trace.header.get(MARK)))
    of_event = np.full(len(trace.start_ns), int(Provenance.UNKNOWN if marked else Provenance.MEASURED))
    for event, told in trace.details.items():
        source = provenance_named(told.get(PROVENANCE))
        if source is not None:
            of_event[event] = source
    found = np.full(len(part.kept), int(Provenance.MEASURED))
    device = (part.kept >= 0) & (part.lane != HOST)
    found[device] = of_event[part.ops.event[part.kept[device]]]
    return found
