"""Figures of a device profile beside kernels: copies over PCIe, and host time of calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prismcore.calibrate.samples import CopyKey, Ints, Spread
from prismcore.graph import CopyDirection
from prismcore.profiles.device import DeviceProfile

__all__ = ["LEAST_CALLS", "CopyRow", "HostRow", "copy_rows", "host_rows", "pcie_bandwidth"]

#: Calls of a kind that a figure of host time needs: gaps differ by what the trainer does there.
LEAST_CALLS = 20
MOST_NS = 10**9  # of a call, as a profile takes it
#: Ninetieth over tenth percentile (or a microsecond, if that is more): beyond, the profiler or the trainer
#: stalled between the calls, and the median is a figure of neither.
MOST_SPREAD = 20
RESOLVED_NS = 1_000
#: A copy over PCIe of at least this many bytes tells bandwidth, not latency.
LARGE_BYTES = 1 << 20
SLOWEST = 1e8  # bytes a second: less is no figure of a profile, as is more than the device's memory has


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyRow:
    """Copies of one direction and memory; ``gbps`` is the median of those of at least a MiB."""

    direction: CopyDirection
    pageable: bool
    count: int
    bytes: int  #: of all
    large: int  #: of at least a MiB
    gbps: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class HostRow:
    """Calls of one kind. ``value_ns``: the profile's new figure; None where the base's stays: for ``why``."""

    figure: str
    measured: Spread
    base_ns: int
    value_ns: int | None
    why: str = ""


def copy_rows(copies: Mapping[CopyKey, Ints]) -> list[CopyRow]:
    """By direction and kind of memory."""
    rows = []
    for direction, pageable in sorted({(key.direction, key.pageable) for key in copies}):
        mine = {k: d for k, d in copies.items() if (k.direction, k.pageable) == (direction, pageable)}
        rates = _rates(mine, 0)
        rows.append(
            CopyRow(
                direction=direction,
                pageable=pageable,
                count=sum(map(len, mine.values())),
                bytes=sum(key.bytes * len(durations) for key, durations in mine.items()),
                large=len(rates),
                gbps=float(np.median(rates)) if len(rates) else None,
            )
        )
    return rows


def pcie_bandwidth(copies: Mapping[CopyKey, Ints], profile: DeviceProfile, least: int) -> float | None:
    """Bytes a second of copies between host and device with pinned memory: the median of those of at least
    a MiB, less the shortest time of a kernel. None: fewer than ``least``, or no link is that."""
    pinned = {
        key: durations
        for key, durations in copies.items()
        if not key.pageable and key.direction in (CopyDirection.HOST_TO_DEVICE, CopyDirection.DEVICE_TO_HOST)
    }
    rates = _rates(pinned, profile.kernel_floor_ns)
    rate = float(np.median(rates)) * 1e9 if len(rates) >= least else 0.0
    return rate if SLOWEST <= rate <= profile.memory_bandwidth else None


def host_rows(host: Mapping[str, Ints], profile: DeviceProfile) -> list[HostRow]:
    """Medians of launches, which differ by what the trainer does between them; of calls the mean of the
    middle four fifths, since older traces hold whole microseconds."""
    rows = []
    for figure in (name for name in type(profile.host).__slots__ if name in host):
        durations = host[figure]
        measured = Spread.of(durations)
        middle = durations[(durations >= measured.p10_ns) & (durations <= measured.p90_ns)]
        launches = figure in ("launch_ns", "copy_ns", "communication_ns")
        value = measured.median_ns if launches or not len(middle) else round(float(middle.mean()))
        why = _why_not(measured, value)
        rows.append(
            HostRow(
                figure=figure,
                measured=measured,
                base_ns=getattr(profile.host, figure),
                value_ns=None if why else value,
                why=why,
            )
        )
    return rows


def _why_not(measured: Spread, value_ns: int) -> str:
    """Why a figure of host time is not taken, in a word or two; empty: it is."""
    if measured.count < LEAST_CALLS:
        return "too few"
    if measured.p90_ns > MOST_SPREAD * max(measured.p10_ns, RESOLVED_NS):
        return "stalls"
    return "too long" if value_ns > MOST_NS else ""


def _rates(copies: Mapping[CopyKey, Ints], floor_ns: int) -> npt.NDArray[np.float64]:
    """Bytes a ns."""
    parts: list[npt.NDArray[np.float64]] = [
        key.bytes / np.maximum(durations - floor_ns, 1)
        for key, durations in copies.items()
        if key.bytes >= LARGE_BYTES
    ]
    return np.concatenate(parts) if parts else np.zeros(0)
