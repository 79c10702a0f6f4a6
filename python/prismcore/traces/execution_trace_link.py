"""Execution traces beside Kineto traces of the same run: what calls of torch.distributed were.

Times, launches and streams come from Kineto; name, number, group, sizes and types of a collective from
the execution trace, where Kineto lacks them (torch before 2.3).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import numpy as np

from prismcore.errors import TraceError
from prismcore.rank_list import format_ranks
from prismcore.stitch.rows import Ints
from prismcore.traces.collectives import told_of_many
from prismcore.traces.execution_trace import ExecutionTrace
from prismcore.traces.execution_trace_calls import DTYPES, Call
from prismcore.traces.execution_trace_groups import Shared, communicators_of, place_ranks
from prismcore.traces.kineto_file import COMMUNICATION, KinetoTrace

__all__ = ["link", "matched_calls"]

_MOST_SHIFTS = 1000
_NAMES = {dtype: name for name, dtype in reversed(DTYPES.items())}
_SIDES = {"send": "Dst Rank", "recv": "Src Rank"}


def link(traces: Sequence[ExecutionTrace], kineto: Sequence[KinetoTrace]) -> list[str]:
    """Puts what execution traces tell into the Kineto traces of the same ranks; returns warnings.

    Raises TraceError where no rank has both.
    """
    traces = place_ranks(traces)
    warnings = told_of_many([text for trace in traces for text in trace.warnings])
    shared = communicators_of(traces, warnings)
    by_rank = {trace.rank: trace for trace in kineto}
    both = [(t, by_rank[t.rank]) for t in traces if t.rank in by_rank]
    if not both:
        raise TraceError(
            f"no rank has both an execution trace (ranks {format_ranks(t.rank or 0 for t in traces)}) and a "
            f"Kineto trace (ranks {format_ranks(k.rank or 0 for k in kineto)}); expected traces of one run"
        )
    for ranks, kind, lacking in (
        ([t.rank or 0 for t in traces if t.rank not in by_rank], "an execution trace", "Kineto trace"),
        (
            sorted({k.rank or 0 for k in kineto} - {t.rank or 0 for t in traces}),
            "a Kineto trace",
            "execution trace",
        ),
    ):
        if ranks:
            what = "are left out" if lacking == "Kineto trace" else "are imported from that alone"
            warnings.append(f"ranks {format_ranks(ranks)} have {kind} and no {lacking}; they {what}")
    for trace, of in both:
        pairs = matched_calls(trace, of)
        calls = sum(call.name != "wait" for call in trace.calls)
        told = sum(call.name != "wait" for call, _ in pairs)
        if told < calls:
            warnings.append(
                f"rank {trace.rank}: {calls - told:,} of {calls:,} calls of torch.distributed in its "
                "execution trace have no event in its Kineto trace"
            )
        for call, event in pairs:
            if call.name != "wait":
                of.details[event] = _details(call, trace, shared) | of.details.get(event, {})
    return warnings


def matched_calls(trace: ExecutionTrace, kineto: KinetoTrace) -> list[tuple[Call, int]]:
    """Calls with their Kineto events: by the number of the host op, which differs by a constant, else in
    the order in which the host ops of a thread come in both."""
    names = [i for i, text in enumerate(kineto.strings) if text == COMMUNICATION]
    events = np.flatnonzero(np.isin(kineto.name, names))
    if not len(events) or not trace.calls:
        return []
    pairs = _by_number(trace, kineto, events)
    return pairs if pairs else _by_thread(trace, kineto, events)


def _by_number(trace: ExecutionTrace, kineto: KinetoTrace, events: Ints) -> list[tuple[Call, int]]:
    """All of the fewer side must be found with one and the same difference."""
    at = {}
    for event in events.tolist():
        text = kineto.details.get(event, {}).get("Ev Idx", "")
        if text.isdigit():
            at[int(text)] = event
    calls = {int(trace.record[call.node]): call for call in trace.calls}
    if not at or len(calls) < len(trace.calls):
        return []
    offset = Counter(j - i for i, j in zip(sorted(calls), sorted(at), strict=False)).most_common(1)[0][0]
    pairs = [(call, at[number + offset]) for number, call in calls.items() if number + offset in at]
    if len(pairs) < min(len(calls), len(at)):
        return []
    return (
        pairs if all(_alike(call, _arguments(kineto.details.get(event, {}))) for call, event in pairs) else []
    )


def _by_thread(trace: ExecutionTrace, kineto: KinetoTrace, events: Ints) -> list[tuple[Call, int]]:
    hosts = kineto.of("cpu_op", "operator", "user_annotation")
    hosts = np.union1d(hosts, events)
    here: dict[int, Counter[str]] = {}
    for thread, name in zip(trace.thread.tolist(), trace.name, strict=True):
        here.setdefault(thread, Counter())[name] += 1
    there: dict[int, Counter[str]] = {}
    for thread, name in zip(kineto.thread[hosts].tolist(), kineto.texts(hosts), strict=True):
        there.setdefault(thread, Counter())[name] += 1
    likeness = sorted(
        (-sum((of & other).values()), thread, against)
        for thread, of in here.items()
        for against, other in there.items()
    )
    taken: dict[int, int] = {}
    for shared, thread, against in likeness:
        if shared and thread not in taken and against not in taken.values():
            taken[thread] = against
    pairs: list[tuple[Call, int]] = []
    events = events[np.argsort(kineto.start_ns[events], kind="stable")]
    for thread, against in taken.items():
        calls = [c for c in trace.calls if int(trace.thread[c.node]) == thread]
        mine = events[kineto.thread[events] == against].tolist()
        pairs += _in_order(calls, mine, kineto)
    return pairs


def _in_order(calls: list[Call], events: list[int], kineto: KinetoTrace) -> list[tuple[Call, int]]:
    """The calls, in order, with events of the same arguments; those of the fewer side are all found, or
    none is."""
    details = [kineto.details.get(event, {}) for event in events]
    told = [_arguments(d) for d in details]
    longest = len(calls) - len(events)
    for skip in sorted({0, longest, *range(min(longest, 0), max(longest, 0) + 1)}, key=abs)[:_MOST_SHIFTS]:
        first = max(skip, 0)
        count = min(len(calls) - first, len(events) - (first - skip))
        mine, theirs = calls[first : first + count], range(first - skip, first - skip + count)
        if all(_alike(call, told[at]) for call, at in zip(mine, theirs, strict=True)):
            return [(call, events[at]) for call, at in zip(mine, theirs, strict=True)]
    return []


def _arguments(details: dict[str, str]) -> tuple[bool | None, dict[int, int]]:
    """Of an event: whether it is a wait, and those arguments that are whole numbers, by position."""
    try:
        types = json.loads(details.get("Input type", "[]"))
        given = json.loads(details.get("Concrete Inputs", "[]"))
    except ValueError:
        return None, {}
    wait = str(types[0]) in ("Scalar", "Int") if isinstance(types, list) and types else None
    texts = enumerate(given if isinstance(given, list) else [])
    return wait, {i: int(text) for i, text in texts if str(text).isdigit()}


def _alike(call: Call, told: tuple[bool | None, dict[int, int]]) -> bool:
    """Whether an event may be the call: only a wait has a plain first argument, and numbers agree."""
    wait, numbers = told
    if wait is not None and wait != (call.name == "wait"):
        return False
    number = numbers.get(0 if call.name == "wait" else 1)
    return number is None or number == call.number


def _details(call: Call, trace: ExecutionTrace, shared: Shared) -> dict[str, str]:
    """As torch 2.3 and later write them to Kineto's own events."""
    communicator = shared[trace.rank or 0, call.group]
    details = {
        "Collective name": call.name,
        "Process Group Name": communicator.name,
        "Bytes": str(call.bytes),
        "Seq": str(call.number),
    }
    if call.dtype in _NAMES:
        details["dtype"] = _NAMES[call.dtype]
    if call.name in _SIDES and call.peer is not None:
        details[_SIDES[call.name]] = str(call.peer)
    if communicator.members is not None:
        details["Process Group Ranks"] = json.dumps(communicator.members)
        details["Group size"] = str(len(communicator.members))
    return details
