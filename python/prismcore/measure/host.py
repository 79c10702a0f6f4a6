"""What calls cost the host: each between two launches that the device waits for, by CUDA events.

With n calls between the launches the events lie n calls further apart than with none: what the launches
and events themselves cost falls out. Wall clocks are not asked, so that a virtual GPU's time counts too.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from prismcore.measure.points import Call
from prismcore.measure.shapes import LayerShape
from prismcore.measure.timing import elapsed_ns

__all__ = ["host_calls"]

_CALLS = 16
_SEGMENT_BYTES = 96 << 20  # above what torch's allocator keeps in common segments


def host_calls(repeats: int) -> dict[str, list[int]]:
    """ns of a call by figure of a profile's ``[host]``, one a repeat; ``bare_launch_ns`` beside them: a
    launch with nothing of a trainer around it."""
    small = torch.zeros(64, device="cuda")
    pinned = torch.zeros(64, pin_memory=True)
    event = torch.cuda.Event()

    def add() -> object:
        return small.add_(1)

    def allocate() -> object:  # and free: a hit in the cache of torch's allocator
        return torch.empty(1 << 20, dtype=torch.uint8, device="cuda")

    figures: dict[str, Call] = {
        "bare_launch_ns": add,
        "copy_ns": lambda: small.copy_(pinned, non_blocking=True),
        "event_ns": event.record,
        "query_ns": event.query,
        "allocate_ns": allocate,
    }
    if torch.distributed.is_initialized():
        figures["communication_ns"] = lambda: torch.distributed.all_reduce(small)
    found: dict[str, list[int]] = {}
    for figure, call in figures.items():
        call()  # imports and first uses
        found[figure] = [_per_call(add, call, _CALLS) for _ in range(repeats + 1)][1:]
    found["sync_ns"] = _synchronise(add, repeats)
    allocate_ns, event_ns = (_median(found[figure]) for figure in ("allocate_ns", "event_ns"))
    found["reserve_ns"] = [max(ns - allocate_ns, 0) for ns in _reserve(add, repeats)]
    if "communication_ns" in found:  # a process group records an event and waits for it
        found["communication_ns"] = [max(ns - 2 * event_ns, 0) for ns in found["communication_ns"]]
    found["launch_ns"] = _layer(add, found, repeats)
    return found


def _median(values: list[int]) -> int:
    return sorted(values)[len(values) // 2]


def _between(launch: Call, call: Call, times: int) -> float:
    """ns from one launch to the next with calls between; the device waits for the second."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    launch()
    begin.record()
    for _ in range(times):
        call()
    launch()
    end.record()
    torch.cuda.synchronize()
    return elapsed_ns(begin, end)


def _per_call(launch: Call, call: Call, times: int) -> int:
    return max(round((_between(launch, call, times) - _between(launch, call, 0)) / times), 0)


def _synchronise(launch: Call, repeats: int) -> list[int]:
    """Of a synchronisation that finds nothing to wait for: the first waits, those behind it do not."""

    def waited() -> int:
        once, more = (_between(launch, torch.cuda.synchronize, n) for n in (1, 1 + _CALLS))
        return max(round((more - once) / _CALLS), 0)

    return [waited() for _ in range(repeats)]


def _reserve(launch: Call, repeats: int) -> list[int]:
    found = []
    for _ in range(repeats):
        torch.cuda.empty_cache()
        kept: list[torch.Tensor] = []
        try:
            found.append(
                _per_call(
                    launch,
                    lambda kept=kept: kept.append(  # type: ignore[misc]
                        torch.empty(_SEGMENT_BYTES, dtype=torch.uint8, device="cuda")
                    ),
                    4,
                )
            )
        except torch.OutOfMemoryError:
            break
        finally:
            kept.clear()
            torch.cuda.empty_cache()
    return found


def _layer(launch: Call, found: dict[str, list[int]], repeats: int) -> list[int]:
    """Of a launch with the trainer's work around it: a training step of a layer too small to keep the device
    busy, by the number of its launches. Allocations are taken off: they have a figure of their own."""
    layer = _SmallLayer(LayerShape(hidden=64, ffn=256, heads=4, kv_heads=4, sequence=32, vocab=128))
    layer.step()
    launches = layer.launches()
    if launches is None:
        return list(found["bare_launch_ns"])
    allocate_ns = _median(found["allocate_ns"])
    out = []
    for _ in range(repeats):
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        took = _between(launch, layer.step, 1) - _between(launch, layer.step, 0)
        allocations = torch.cuda.memory_stats()["allocation.all.allocated"] - before
        out.append(max(round((took - allocations * allocate_ns) / launches), 0))
    return out


class _SmallLayer:
    def __init__(self, shape: LayerShape) -> None:
        self._x = torch.zeros(shape.sequence, 1, shape.hidden, device="cuda", requires_grad=True)
        self._layers = torch.nn.ModuleList(
            [
                torch.nn.LayerNorm(shape.hidden),
                torch.nn.Linear(shape.hidden, shape.ffn),
                torch.nn.GELU(),
                torch.nn.Linear(shape.ffn, shape.hidden),
            ]
        ).cuda()

    def step(self) -> object:
        x: torch.Tensor = self._x
        for layer in self._layers:
            x = layer(x)
        return torch.autograd.grad(functional.mse_loss(x, self._x), [self._x, *self._layers.parameters()])

    def launches(self) -> int | None:
        """Launches of a step, as torch's profiler counts the calls of the runtime; None: it sees none."""
        from torch.profiler import ProfilerActivity, profile

        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            self.step()
            torch.cuda.synchronize()
        names = [event.name for event in profiler.events()]
        count = sum("LaunchKernel" in name for name in names)
        return count or None
