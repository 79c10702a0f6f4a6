"""What was measured, sorted by what it is a sample of. Times are integer ns, sizes bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from prismcore.errors import TraceError
from prismcore.graph import CopyDirection, Kernel, OpKind
from prismcore.traces.kineto_device import FoundDevice

__all__ = [
    "CollectiveKey",
    "CopyKey",
    "FoundDevice",
    "Ints",
    "Samples",
    "Spread",
    "by_number",
    "merged_samples",
    "not_measured",
]

Ints = npt.NDArray[np.int64]
_K = TypeVar("_K")


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectiveKey:
    """Collectives that should take the same time. ``bytes``: larger of the send and receive buffer.
    ``dtype`` decides which algorithms there are; the default stands for one that is not told."""

    kind: OpKind
    bytes: int
    members: tuple[int, ...]
    dtype: str = "bfloat16"


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyKey:
    direction: CopyDirection
    bytes: int
    pageable: bool = False  #: memory of the host that is not pinned


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Of a series of durations: count, median, tenth and ninetieth percentile."""

    count: int
    median_ns: int
    p10_ns: int
    p90_ns: int

    @staticmethod
    def of(durations_ns: Ints) -> Spread:
        """Of at least one duration."""
        p10, median, p90 = (int(q) for q in np.rint(np.percentile(durations_ns, (10, 50, 90))))
        return Spread(count=len(durations_ns), median_ns=median, p10_ns=p10, p90_ns=p90)


@dataclass(kw_only=True, slots=True)
class Samples:
    """Durations by kernel, collective, copy and host call; each array has at least one entry.

    Collectives hold no waiting: one sample a meeting, of the member that came last. ``host``: by figure
    of a profile's ``[host]``.
    """

    source: str  #: what the samples are of, in a few words
    kind: str = "traces of"  #: in front of it, in what a profile says of itself
    ranks: int
    device: FoundDevice | None = None
    kernels: dict[Kernel, Ints] = field(default_factory=dict)
    collectives: dict[CollectiveKey, Ints] = field(default_factory=dict)
    copies: dict[CopyKey, Ints] = field(default_factory=dict)
    host: dict[str, Ints] = field(default_factory=dict)
    host_profiled: bool = True  #: a profiler ran while host times were taken
    collectives_left_out: dict[str, int] = field(default_factory=dict)  #: why, and how many
    warnings: list[str] = field(default_factory=list)

    @property
    def device_ns(self) -> int:
        """Of all kernels."""
        return sum(int(durations.sum()) for durations in self.kernels.values())

    def leave_out(self, reasons: Sequence[str]) -> None:
        """Counts collectives that are no samples, one reason each."""
        for reason, count in Counter(reasons).items():
            self.collectives_left_out[reason] = self.collectives_left_out.get(reason, 0) + count


def by_number(numbers: Ints, durations_ns: Ints) -> dict[int, Ints]:
    """Durations of each number that occurs."""
    order = np.argsort(numbers, kind="stable")
    found, first = np.unique(numbers[order], return_index=True)
    return (
        dict(zip(found.tolist(), np.split(durations_ns[order], first[1:]), strict=True)) if len(found) else {}
    )


def not_measured(name: str, *, exported: bool) -> str:
    """Why there is nothing to learn from it."""
    of = "a replay's (prism export)" if exported else "of models"
    return f"{name}: none of its durations was measured, they are {of}; expected traces of a run"


def merged_samples(parts: Sequence[Samples]) -> Samples:
    """The samples of several jobs as one.

    Raises TraceError where they are of different devices, or there are none.
    """
    if not parts:
        raise TraceError("no traces given, expected at least one")
    told = {part.device for part in parts if part.device is not None}
    if len(told) > 1:
        names = " and ".join(sorted(device.name for device in told))
        raise TraceError(
            f"traces of different devices found ({names}), expected those of one; give one at a time"
        )
    return Samples(
        source=parts[0].source if len(parts) == 1 else f"{len(parts)} jobs",
        kind=parts[0].kind,
        ranks=sum(part.ranks for part in parts),
        device=next(iter(told), None),
        kernels=_joined([part.kernels for part in parts]),
        collectives=_joined([part.collectives for part in parts]),
        copies=_joined([part.copies for part in parts]),
        host=_joined([part.host for part in parts]),
        host_profiled=any(part.host_profiled for part in parts),
        collectives_left_out=_summed([part.collectives_left_out for part in parts]),
        warnings=[text for part in parts for text in part.warnings],
    )


def _joined(parts: Sequence[Mapping[_K, Ints]]) -> dict[_K, Ints]:
    lists: dict[_K, list[Ints]] = {}
    for part in parts:
        for key, durations in part.items():
            lists.setdefault(key, []).append(durations)
    return {key: np.concatenate(durations) for key, durations in lists.items()}


def _summed(parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {
        key: sum(part.get(key, 0) for part in parts) for key in dict.fromkeys(k for p in parts for k in p)
    }
