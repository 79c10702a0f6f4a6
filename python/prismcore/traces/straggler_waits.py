"""Who waited for whom inside a rank: what the times show, and what any pipeline schedule obeys."""

from __future__ import annotations

import numpy as np

from prismcore.stitch.rows import Ints, ordinals
from prismcore.stitch.waits import Waits, add_rule, shown_waits
from prismcore.traces.straggler import Operation
from prismcore.traces.straggler_rows import LANES, StragglerRows

__all__ = ["find_waits"]


def find_waits(of: StragglerRows, warnings: list[str]) -> Waits:
    """Compute waits for its receive, sends for their compute, the first compute of a chunk for its
    parameters, gradients for the last backward of their chunk; all for what the times show."""
    waits = shown_waits(of.rows, of.operation, len(LANES))
    last_chunk = max(int(of.model_chunk.max()), of.sizes.pp * of.sizes.vpp - 1)
    segment = of.rows.segment
    forward, backward = of.of(Operation.FORWARD_COMPUTE), of.of(Operation.BACKWARD_COMPUTE)
    needs_forward, gives_forward = (
        forward[of.model_chunk[forward] > 0],
        forward[of.model_chunk[forward] < last_chunk],
    )
    needs_backward, gives_backward = (
        backward[of.model_chunk[backward] < last_chunk],
        backward[of.model_chunk[backward] > 0],
    )
    gathers = of.of(Operation.PARAMS_ALL_GATHER)
    scatters = of.of(Operation.GRADS_REDUCE_SCATTER, Operation.SEPARATE_GRADS_ALL_REDUCE)
    pairs = (
        (needs_forward, of.of(Operation.FORWARD_RECV)),
        (needs_backward, of.of(Operation.BACKWARD_RECV)),
        (of.of(Operation.FORWARD_SEND), gives_forward),
        (of.of(Operation.BACKWARD_SEND), gives_backward),
    )
    rules = [(w, f, _counterpart(segment, w, f)) for w, f in pairs]
    rules += [(w, f, _latest(segment, of.chunk, w, f)) for w, f in ((forward, gathers), (scatters, backward))]
    broken = 0
    for waiting, waited, found in rules:
        if len(waited):
            rule = np.full(len(of.operation), -1, dtype=np.int64)
            rule[waiting] = found
            broken += add_rule(of.rows, waits, int(of.rows.lane[waited[0]]), rule)
    if broken:
        warnings.append(
            f"{broken:,} ops begin before what they need by the rules of the schedule has ended; they do not "
            "wait for it"
        )
    return waits


def _counterpart(segment: Ints, waiting: Ints, waited: Ints) -> Ints:
    """The n-th of ``waited`` for the n-th of ``waiting`` of a rank and step; -1 where there is none."""
    scale = int(segment.max(initial=0)) + 2

    def keys(rows: Ints) -> Ints:
        return segment[rows] * scale + ordinals(segment[rows])

    return _looked_up(keys(waiting), keys(waited), waited)


def _latest(segment: Ints, chunk: Ints, waiting: Ints, waited: Ints) -> Ints:
    """The last of ``waited`` of the same rank, step and chunk that stands before; -1 for none."""
    if not len(waited):
        return np.full(len(waiting), -1, dtype=np.int64)
    group, scale = segment * (int(chunk.max()) + 2) + chunk + 1, len(segment) + 1
    order = np.argsort(group[waited], kind="stable")
    known = group[waited][order] * scale + waited[order]
    at = np.searchsorted(known, group[waiting] * scale + waiting) - 1
    found = waited[order][np.maximum(at, 0)]
    return np.where((at >= 0) & (group[found] == group[waiting]), found, -1)


def _looked_up(wanted: Ints, known: Ints, rows: Ints) -> Ints:
    if not len(known):
        return np.full(len(wanted), -1, dtype=np.int64)
    order = np.argsort(known)
    at = np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)
    return np.where(known[order][at] == wanted, rows[order][at], -1)
