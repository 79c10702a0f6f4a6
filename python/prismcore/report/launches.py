"""Launches on the device whose duration nobody knows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from prismcore.graph import Graph, OpKind, Provenance
from prismcore.report.words import short_name

if TYPE_CHECKING:
    from prismcore.profiles.device import DeviceProfile

__all__ = ["Launches", "launches"]

_LAUNCHES = (OpKind.KERNEL, OpKind.COPY, OpKind.SET)


@dataclass(kw_only=True, slots=True)
class Launches:
    """Kernels, copies and sets of all ranks and iterations."""

    count: int = 0
    untimed: int = 0  #: without a duration: they count as 0
    kernels: int = 0
    unknown: Counter[str] = field(default_factory=Counter)  #: kernels without a known duration, by identifier
    anew: bool = False  #: as a profile costs them, that of a replay

    def provenance_words(self, *, imported: bool) -> str:
        """What shares of device time leave out; empty: nothing."""
        if self.untimed:
            return f"; {self._untimed()}"
        if self.anew and self.unknown:
            of = f"{self.unknown.total():,} of {self.kernels:,} kernel launches"
            return f"; {of} are not known to this profile"
        return "; the traces hold no kernels" if imported and not self.count else ""

    def time_words(self, time_ns: int | float, time: str) -> str:
        """``time``, with what it leaves out; ``time_ns``: its figure."""
        if not self.untimed:
            return time
        if not time_ns:
            return f"not known: {self._untimed()}"
        alone = "communication alone, " if self.untimed == self.count else ""
        return f"{time}: {alone}{self._untimed()}"

    def _untimed(self) -> str:
        if self.untimed == self.count:
            return f"none of {self.count:,} launches on the device has a duration"
        return f"{self.untimed:,} of {self.count:,} launches on the device have no duration"


def launches(graph: Graph, device: DeviceProfile | None = None) -> Launches:
    """As they are in the graph; with ``device`` as a replay with that profile costs them."""
    ops = graph.blocks(np.arange(graph.num_blocks, dtype=np.uint32))
    weight = _weight(graph)
    device_op = np.isin(ops["kind"], _LAUNCHES) & (weight > 0)
    kernel = device_op & (ops["kind"] == OpKind.KERNEL)
    found = Launches(
        count=int(weight[device_op].sum()), kernels=int(weight[kernel].sum()), anew=device is not None
    )
    unknown = kernel & ((ops["flags"] & 3) == Provenance.UNKNOWN)
    if device is None:
        lacking = device_op & ((ops["flags"] & 3) == Provenance.UNKNOWN) & (ops["duration_ns"] == 0)
        found.untimed = int(weight[lacking].sum())
    else:
        unknown = kernel & np.isin(ops["ref"], _not_known(graph, device))
    for id in np.unique(ops["ref"][unknown]).tolist():
        found.unknown[short_name(graph.kernel(id).name)] += int(weight[unknown & (ops["ref"] == id)].sum())
    return found


def _weight(graph: Graph) -> npt.NDArray[np.int64]:
    """How often each op of the stored blocks runs."""
    classes = Counter(graph.rank(int(r)).rank_class for r in graph.ranks)
    times = np.zeros(graph.num_blocks, dtype=np.int64)
    for rank_class, count in classes.items():
        times += count * np.bincount(graph.program_blocks(rank_class), minlength=graph.num_blocks)
    offsets = graph.block_offsets.astype(np.int64)
    return np.repeat(times, offsets[1:] - offsets[:-1])


def _not_known(graph: Graph, device: DeviceProfile) -> list[int]:
    """Kernels of the graph for which the profile has no rule."""
    from prismcore.calibrate.kernels import kernel_shape
    from prismcore.cost import kernel_cost

    core = device.to_core()
    kernels = [graph.kernel(i) for i in range(graph.num_kernels)]
    costs = [kernel_cost(kernel.name, kernel_shape(kernel), core) for kernel in kernels]
    return [i for i, cost in enumerate(costs) if cost.provenance == "unknown"]
