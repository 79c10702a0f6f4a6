"""Which device traces were measured on, and which profile is of that device."""

from __future__ import annotations

import re
from collections.abc import Sequence

from prismcore.errors import TraceError
from prismcore.profiles.device import DeviceProfile, device_profiles, load_device
from prismcore.traces.kineto_device import FoundDevice, told_devices
from prismcore.traces.kineto_file import KinetoTrace

__all__ = ["base_for", "check_base", "found_device", "other_memory"]

#: Totals of one card differ this much between drivers.
MEMORY_TOLERANCE = 0.05
#: More than this many times the memory, or less than its inverse, is of no card of the family.
MOST_MEMORY_RATIO = 4
#: Of a name such as ``NVIDIA A100-SXM4-80GB``.
_FAMILY = re.compile(r"\b[A-Z]+\d+[A-Z]*\b")


def found_device(traces: Sequence[KinetoTrace]) -> FoundDevice | None:
    """The device that the kernels of all traces ran on, by ``deviceProperties``; None where no trace tells.

    Raises TraceError where traces are of different devices.
    """
    first: tuple[FoundDevice, str] | None = None
    for trace in traces:
        for device in told_devices(trace):
            if first is None:
                first = device, trace.path
            elif device != first[0]:
                raise TraceError(
                    f"{trace.path}: {_words(device)} found, where {first[1]} is of {_words(first[0])}; "
                    "expected traces of one kind of device"
                )
    return None if first is None else first[0]


def base_for(device: FoundDevice) -> str:
    """Name of the shipped profile of that device, else of one that differs in memory alone.

    Raises TraceError where there is none.
    """
    profiles = {name: load_device(name) for name in device_profiles()}
    for name, profile in profiles.items():
        if not _differences(device, profile):
            return name
    for name, profile in profiles.items():
        if other_memory(device, profile):
            return name
    raise TraceError(
        f"{_words(device)} found, expected a device with a profile ({', '.join(device_profiles())}); write "
        "one that extends a near one (base, memory_bytes, ...: docs/profiles.md) and name it (--base)"
    )


def check_base(device: FoundDevice, base: str, profile: DeviceProfile) -> None:
    """Raises TraceError where the traces are of another device than the profile, its memory aside."""
    differences = _differences(device, profile)
    if differences and not other_memory(device, profile):
        raise TraceError(
            f"traces of {_words(device)} found, expected those of {profile.name} ({base}), which has "
            f"{', '.join(differences)}; name a profile of that device (--base)"
        )


def other_memory(device: FoundDevice, profile: DeviceProfile) -> bool:
    """Whether the device is the profile's, by name (A100), compute capability and SMs, but for its memory."""
    family, other = (_FAMILY.search(name) for name in (device.name, profile.name))
    alike = family is not None and other is not None and family[0] == other[0]
    size = device.memory_bytes
    like_memory = 1 / MOST_MEMORY_RATIO <= size / profile.memory_bytes <= MOST_MEMORY_RATIO
    if not alike or not like_memory or size <= profile.context_bytes:
        return False
    found = _differences(device, profile)
    return len(found) == 1 and found[0] == _memory(profile)


def _differences(device: FoundDevice, profile: DeviceProfile) -> list[str]:
    out = []
    if device.compute_capability != profile.compute_capability:
        out.append(f"compute capability {'.'.join(map(str, profile.compute_capability))}")
    if device.sms != profile.sms:
        out.append(f"{profile.sms} SMs")
    if abs(device.memory_bytes / profile.memory_bytes - 1) > MEMORY_TOLERANCE:
        out.append(_memory(profile))
    return out


def _memory(profile: DeviceProfile) -> str:
    return f"{profile.memory_bytes:,} bytes of memory"


def _words(device: FoundDevice) -> str:
    major, minor = device.compute_capability
    return (
        f"{device.name} (compute capability {major}.{minor}, {device.sms} SMs, {device.memory_bytes:,} bytes)"
    )
