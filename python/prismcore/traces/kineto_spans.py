"""Which call of torch.distributed a host call was made in."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from prismcore.traces.kineto_file import COMMUNICATION, KinetoTrace

__all__ = ["CommunicationSpans", "by_thread"]

_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]

#: What torch calls the ranges around collectives, beside its records: ``nccl:all_reduce``.
ANNOTATION = "nccl:"
DEEPEST = 64


def by_thread(trace: KinetoTrace, events: _Ints) -> dict[int, _Ints]:
    """Positions in ``events`` of those of each thread, in order."""
    thread = trace.thread[events]
    order = np.argsort(thread, kind="stable")
    first = np.flatnonzero(np.diff(thread[order].astype(np.int64), prepend=-1))
    parts = np.split(order, first[1:])
    return {int(thread[part[0]]): part for part in parts if len(part)}


class CommunicationSpans:
    """The calls of a trace. Calls of a thread lie inside or beside each other."""

    def __init__(self, trace: KinetoTrace) -> None:
        self._trace = trace
        records = {i for i, text in enumerate(trace.strings) if text == COMMUNICATION}
        annotations = {i for i, text in enumerate(trace.strings) if text.startswith(ANNOTATION)}
        self._records = records
        spans = np.flatnonzero(np.isin(trace.name, list(records | annotations)))
        spans = spans[np.lexsort((-trace.end_ns[spans], trace.start_ns[spans]))]
        self._of_thread = {thread: spans[at] for thread, at in by_thread(trace, spans).items()}
        self._outer = {thread: self._outside(of) for thread, of in self._of_thread.items()}

    def _outside(self, spans: _Ints) -> _Ints:
        """For each span the place of the one around it; -1 for none."""
        outer = np.full(len(spans), -1, dtype=np.int64)
        open_spans: list[int] = []
        ends = self._trace.end_ns[spans].tolist()
        for place, begin in enumerate(self._trace.start_ns[spans].tolist()):
            while open_spans and ends[open_spans[-1]] <= begin:
                open_spans.pop()
            outer[place] = open_spans[-1] if open_spans else -1
            open_spans.append(place)
        return outer

    def around(self, event: int) -> list[int]:
        """Spans in which a host call was made, the innermost first."""
        trace = self._trace
        spans = self._of_thread.get(int(trace.thread[event]))
        if spans is None:
            return []
        begin = trace.start_ns[event]
        outer = self._outer[int(trace.thread[event])]
        place = int(np.searchsorted(trace.start_ns[spans], begin, "right")) - 1
        found: list[int] = []
        while place >= 0 and len(found) < DEEPEST:
            if trace.end_ns[spans[place]] >= begin:
                found.append(int(spans[place]))
            place = int(outer[place])
        return found

    def details(self, event: int) -> dict[str, str]:
        """What the innermost record around a host call tells; beside it, as ``Range``, ``Range Dims`` and
        ``Range type``, name and shapes of the innermost range."""
        around = self.around(event)
        strings = self._trace.strings
        records = [e for e in around if int(self._trace.name[e]) in self._records]
        ranges = [e for e in around if int(self._trace.name[e]) not in self._records]
        told = dict(self._trace.details.get(records[0], {})) if records else {}
        if ranges:
            told["Range"] = strings[self._trace.name[ranges[0]]]
            shapes = self._trace.details.get(ranges[0], {})
            for key in ("Dims", "type"):
                if f"Input {key}" in shapes:
                    told[f"Range {key}"] = shapes[f"Input {key}"]
        return told

    def launching(self, calls: _Ints, launches: _Ints) -> _Bools:
        """Which of the calls were made inside a record that launches something itself; shape [calls]."""
        trace = self._trace
        inside = np.zeros(len(calls), dtype=bool)
        of_launches, of_calls = by_thread(trace, launches), by_thread(trace, calls)
        for thread, spans in self._of_thread.items():
            if thread not in of_launches or thread not in of_calls:
                continue
            mine = spans[np.isin(trace.name[spans], list(self._records))]
            begin, end = trace.start_ns[mine], trace.end_ns[mine]
            at = np.sort(trace.start_ns[launches[of_launches[thread]]])
            kept = np.searchsorted(at, end, "right") > np.searchsorted(at, begin)
            begin, end = begin[kept], np.maximum.accumulate(end[kept]) if kept.any() else end[kept]
            if not len(begin):
                continue
            called = trace.start_ns[calls[of_calls[thread]]]
            place = np.searchsorted(begin, called, "right") - 1
            inside[of_calls[thread]] = (place >= 0) & (called <= end[np.maximum(place, 0)])
        return inside
