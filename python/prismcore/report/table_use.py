"""How much of a profile's timing table a job's kernels find."""

from __future__ import annotations

import copy
import dataclasses
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prismcore.errors import ProfileError
from prismcore.graph import Graph

if TYPE_CHECKING:
    from prismcore.profiles.device import DeviceProfile

__all__ = ["TableUse", "profile_of", "table_use", "table_warnings"]

#: Of the rows, and of a job's kernels: a table that serves less of both was measured on another job.
FEW = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class TableUse:
    """``kernels``: different launches of the job; ``found``: those that have a row; ``used``: their rows."""

    rows: int
    used: int
    kernels: int
    found: int


def table_use(graph: Graph, device: DeviceProfile) -> TableUse:
    """Of the graph's kernels, as a replay with that profile would look them up."""
    from prismcore.calibrate.kernels import kernel_shape
    from prismcore.cost import kernel_cost

    numbered = copy.copy(device)  # a row tells its number for its duration
    numbered.rows = [dataclasses.replace(row, duration_ns=i) for i, row in enumerate(device.rows)]
    core = numbered.to_core()
    kernels = [graph.kernel(i) for i in range(graph.num_kernels)]
    costs = [kernel_cost(kernel.name, kernel_shape(kernel), core) for kernel in kernels]
    found = [cost.duration_ns for cost in costs if cost.provenance == "table"]
    return TableUse(rows=len(device.rows), used=len(set(found)), kernels=len(kernels), found=len(found))


def profile_of(graph: Graph, device: DeviceProfile | None) -> DeviceProfile | None:
    """``device``, else the profile that the graph was collected with; None where that is not here any more,
    or the graph was not collected."""
    from prismcore.profiles.device import load_device

    name = graph.metadata.get("device")
    if device is not None or not isinstance(name, str):
        return device
    try:
        return load_device(name)
    except ProfileError:
        return None


def table_warnings(graph: Graph, device: DeviceProfile | None = None) -> list[str]:
    """One where the job finds (next to) nothing in a table; ``device``: that a replay costs anew with; None:
    that of the collection."""
    profile = profile_of(graph, device)
    if profile is None or profile.table is None or not profile.rows or not graph.num_kernels:
        return []
    use = table_use(graph, profile)
    if use.used and (use.used >= FEW * use.rows or use.found >= FEW * use.kernels):
        return []
    by = f"{use.found:,}" if use.found else "none"
    return [
        f"{use.used:,} of {use.rows:,} rows of {os.path.basename(profile.table)} used, by {by} of the job's "
        f"{use.kernels:,} kernels: type, shape or name differ from what was measured, so times are the "
        "model's"
    ]
