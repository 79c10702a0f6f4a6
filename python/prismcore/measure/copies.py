"""Copies between device and host, and on the device, by size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch

from prismcore.measure.points import Call
from prismcore.measure.timing import Cover, timed

__all__ = ["SIZES", "copies"]

SIZES: Final = (4 << 10, 256 << 10, 1 << 20, 16 << 20, 128 << 20)


def copies(cover: Cover, repeats: int) -> Iterator[dict[str, Any]]:
    """One entry a direction, size and kind of host memory: ``direction`` (as a graph's copies), ``bytes``,
    ``pageable``, ``durations_ns``, ``covered``. Sizes that do not fit are left out."""
    for size in SIZES:
        for direction, pageable in (
            ("host_to_device", False),
            ("device_to_host", False),
            ("device_to_device", False),
            ("host_to_device", True),
            ("device_to_host", True),
        ):
            if pageable and size > 16 << 20:
                continue
            try:
                call = _copy(direction, size, pageable)
                found = timed(call, None if pageable else cover, repeats=repeats)
            except torch.OutOfMemoryError:
                continue
            yield {
                "direction": direction,
                "bytes": size,
                "pageable": pageable,
                "durations_ns": found.durations_ns,
                "covered": found.covered and not pageable,
            }


def _copy(direction: str, size: int, pageable: bool) -> Call:
    device = torch.empty(size, dtype=torch.uint8, device="cuda")
    if direction == "device_to_device":
        other = torch.empty_like(device)
    else:
        other = torch.empty(size, dtype=torch.uint8, pin_memory=not pageable)
    into, source = (other, device) if direction == "device_to_host" else (device, other)
    return lambda: into.copy_(source, non_blocking=not pageable)
