"""The device that traces of torch's profiler were measured on, as they and graphs of them tell it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from prismcore.traces.kineto_file import KinetoTrace

__all__ = ["FoundDevice", "noted_device", "told_device", "told_devices"]

_KEYS = ("name", "computeMajor", "computeMinor", "numSms", "totalGlobalMem")


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundDevice:
    """What a trace tells of the device that it was measured on."""

    name: str
    compute_capability: tuple[int, int]
    sms: int
    memory_bytes: int

    def note(self) -> dict[str, Any]:
        """For the metadata of a graph, under ``traced_device``."""
        return {**asdict(self), "compute_capability": list(self.compute_capability)}


def noted_device(note: Any) -> FoundDevice | None:
    """Of the metadata of a graph; None where it tells less than all."""
    if not isinstance(note, dict):
        return None
    capability = note.get("compute_capability")
    major, minor = capability if isinstance(capability, list) and len(capability) == 2 else (None, None)
    return _device(note.get("name"), major, minor, note.get("sms"), note.get("memory_bytes"))


def told_devices(trace: KinetoTrace) -> list[FoundDevice]:
    """Of the devices of ``deviceProperties`` those that the trace's device ops ran on."""
    return list(dict.fromkeys(d for entry in _used(trace) if (d := _of_entry(entry)) is not None))


def told_device(traces: Sequence[KinetoTrace], warnings: list[str]) -> dict[str, Any] | None:
    """The note of the device of all traces: its name alone where they tell no more; None where they tell
    nothing, or several, which ``warnings`` then say."""
    notes: list[dict[str, Any]] = []
    for trace in traces:
        for entry in _used(trace):
            device, name = _of_entry(entry), _name(entry.get("name"))
            note = device.note() if device is not None else {"name": name}
            if name is not None and note not in notes:
                notes.append(note)
    if len(notes) > 1:
        names = ", ".join(sorted({note["name"] for note in notes})[:8])
        warnings.append(f"the traces are of devices that differ ({names}); the graph keeps none of them")
    return notes[0] if len(notes) == 1 else None


def _used(trace: KinetoTrace) -> list[dict[str, Any]]:
    listed = trace.header.get("deviceProperties")
    if not isinstance(listed, list):
        return []
    used = set(np.unique(trace.device[trace.of("kernel", "gpu_memcpy", "gpu_memset")]).tolist())
    entries = [entry for entry in listed if isinstance(entry, dict)]
    return [entry for entry in entries if len(listed) == 1 or _number(entry.get("id")) in used]


def _of_entry(entry: dict[str, Any]) -> FoundDevice | None:
    return _device(*(entry.get(key) for key in _KEYS))


def _device(name: Any, *numbers: Any) -> FoundDevice | None:
    major, minor, sms, memory = (_number(number) for number in numbers)
    named = _name(name)
    if named is None or major is None or minor is None or sms is None or memory is None:
        return None
    return FoundDevice(name=named, compute_capability=(major, minor), sms=sms, memory_bytes=memory)


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() and value.isprintable() else None


def _number(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**63 else None
