"""Time of calls on the device, by CUDA events.

A long product in front keeps the device busy while the host issues what is measured, so that the time
between two events is the device's and not the host's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from prismcore.measure.points import Call

__all__ = ["Cover", "Timed", "elapsed_ns", "timed"]

_WIDTHS = (8192, 4096, 2048, 1024)
_MOST_COVERS = 64
_LONG_NS = 2_000_000  # a call this long hides its host by itself


@dataclass(kw_only=True, slots=True)
class Timed:
    """ns of one call, one a repeat. ``covered``: the host was ahead of the device throughout."""

    durations_ns: list[int] = field(default_factory=list)
    covered: bool = True


class Cover:
    """A product that keeps the device busy; as large as a fortieth of the free memory allows."""

    def __init__(self) -> None:
        free, _ = torch.cuda.mem_get_info()
        width = next((w for w in _WIDTHS if 6 * w * w * 40 < free), _WIDTHS[-1])
        self._a, self._b, self._out = (
            torch.empty(width, width, dtype=torch.bfloat16, device="cuda").zero_() for _ in range(3)
        )

    def __call__(self, times: int) -> None:
        for _ in range(times):
            torch.mm(self._a, self._b, out=self._out)


def elapsed_ns(begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
    return float(begin.elapsed_time(end)) * 1e6


def timed(call: Call, cover: Cover | None, *, repeats: int, warm_up: int = 2) -> Timed:
    """Measures ``call``: ``repeats`` times several calls in a row, after ``warm_up`` calls. ``cover`` None: a
    call that blocks the host, which nothing can hide.

    Events have a resolution of half a microsecond, so short calls are measured ten at a time.
    """
    for _ in range(warm_up):
        call()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    covers, inner = 1, 10
    result = Timed()
    while len(result.durations_ns) < repeats:
        if cover is not None:
            cover(covers)
        begin.record()
        for _ in range(inner):
            call()
        end.record()
        ahead = not begin.query()
        torch.cuda.synchronize()
        took = round(elapsed_ns(begin, end) / inner)
        if took >= _LONG_NS and inner > 1:
            inner = 1
        elif cover is None or ahead or took >= _LONG_NS or covers >= _MOST_COVERS:
            result.durations_ns.append(took)
            result.covered &= ahead or took >= _LONG_NS
        else:
            covers *= 4
    return result
