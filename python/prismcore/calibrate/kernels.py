"""Timing table and efficiencies of kernel families from measured kernels."""

from __future__ import annotations

import copy
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from prismcore import _core
from prismcore.calibrate.samples import Ints, Spread
from prismcore.cost import DTYPES, KernelCost, KernelShape, kernel_cost
from prismcore.graph import Kernel
from prismcore.profiles.device import DeviceProfile
from prismcore.profiles.timing_table import TimingRow

__all__ = [
    "FamilyFit",
    "KernelRow",
    "fit_families",
    "kernel_rows",
    "kernel_shape",
    "product_name",
    "table_rows",
]

#: Kernels that add up the parts of a split product: part of its time, not a product of their own.
_SPLIT = re.compile(r"splitk", re.IGNORECASE)
_DTYPE_NAMES: Final = {number: name for name, number in DTYPES.items()}
MOST_NS = 2**53  # of a row
# Of the search for an efficiency.
_LEAST_SHARE, _HALVINGS, _REACHED = 0.05, 20, 0.01
_LIMITS = 1.03  # a tenth less of the peak makes a launch that it limits longer by this at least


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelRow:
    """Launches that one row of a timing table stands for.

    ``base``: what the base profile says of them. ``shape``: of a product its dimensions alone.
    """

    name: str
    shape: KernelShape
    measured: Spread
    total_ns: int
    base: KernelCost
    in_table: bool  #: there are samples enough


@dataclass(frozen=True, kw_only=True, slots=True)
class FamilyFit:
    """``share``: of the peak, fitted; None where the base's stays: nothing tells it, or what was found
    (``rejected``) gives the time of all of them worse."""

    family: str
    kernels: int  #: different launches
    telling: int  #: of those, what tells a share
    launches: int
    measured_ns: int
    base_ns: int  #: of the same launches
    base_share: float
    share: float | None
    fitted_ns: int
    rejected: float | None = None


def product_name(kernel: str) -> str:
    """Name of the table's row of a product that this kernel computes."""
    return "product:tf32" if "tf32" in kernel else "product"


def kernel_rows(kernels: Mapping[Kernel, Ints], profile: DeviceProfile, least: int) -> list[KernelRow]:
    """One row for each product (dimensions and type) and each other launch (name, grid, block), by time.

    Where a library splits a product over two kernels its row has both. ``least``: samples that a row of a
    table needs.
    """
    core = _without_table(profile)
    rows = []
    for (name, shape), durations in _series(kernels).items():
        measured = Spread.of(durations)
        rows.append(
            KernelRow(
                name=name,
                shape=shape,
                measured=measured,
                total_ns=int(durations.sum()),
                base=kernel_cost(name, shape, core),
                in_table=len(durations) >= least and _can_stand(name, measured),
            )
        )
    return sorted(rows, key=lambda row: (-row.total_ns, row.name))


def table_rows(kernels: Mapping[Kernel, Ints], rows: Sequence[KernelRow], least: int) -> list[TimingRow]:
    """The rows of a timing table: those of :func:`kernel_rows`, and those of libraries' own kernels under
    their own names, as an imported graph has them."""
    out = [
        TimingRow(name=row.name, shape=row.shape, duration_ns=row.measured.median_ns)
        for row in rows
        if row.in_table
    ]
    for kernel, durations in kernels.items():
        measured = Spread.of(durations)
        if kernel.gemm is not None and len(durations) >= least and _can_stand(kernel.name, measured):
            out.append(
                TimingRow(name=kernel.name, shape=kernel_shape(kernel), duration_ns=measured.median_ns)
            )
    return sorted(out, key=lambda row: (row.name, row.shape.grid, row.shape.m, row.shape.n, row.shape.k))


def fit_families(rows: Sequence[KernelRow], profile: DeviceProfile) -> list[FamilyFit]:
    """Efficiencies of the families that ``rows`` tell of: of the shares at which the model gives what was
    measured, the median by time. Copies come first, since products end with one.

    A launch tells a share where the model need not assume its work, where the peak limits it (not address
    arithmetic, nor the floor), and where a share from 5 to 100 % exists: what would need another has other
    work than the model thinks. A share that makes the sum of the family's times worse than the base's does
    is not taken.
    """
    of_family: dict[str, list[KernelRow]] = defaultdict(list)
    for row in rows:
        if (
            row.in_table
            and row.base.provenance == "model"
            and not row.base.assumed
            and row.measured.median_ns
        ):
            of_family[row.base.family].append(row)
    fitted = copy.deepcopy(profile)
    fits = []
    for family in sorted(of_family, key=lambda f: (f != "copy", f == "gemm", f)):
        mine = of_family[family]
        base_share = getattr(profile.efficiency, family)
        told = [(share, row) for row in mine if (share := _told_share(family, row, fitted)) is not None]
        share, rejected = _median_by_time(told), None
        measured_ns = sum(row.total_ns for row in mine)
        base_ns = fitted_ns = _modelled_ns(mine, _without_table(profile))
        if share is not None:
            setattr(fitted.efficiency, family, share)
            fitted_ns = _modelled_ns(mine, _without_table(fitted))
            if abs(fitted_ns - measured_ns) > abs(base_ns - measured_ns):
                setattr(fitted.efficiency, family, base_share)
                share, rejected = None, share
        fits.append(
            FamilyFit(
                family=family,
                kernels=len(mine),
                telling=len(told),
                launches=sum(row.measured.count for row in mine),
                measured_ns=measured_ns,
                base_ns=base_ns,
                base_share=base_share,
                share=share,
                fitted_ns=_modelled_ns(mine, _without_table(fitted)) if share is None else fitted_ns,
                rejected=rejected,
            )
        )
    return sorted(fits, key=lambda fit: -fit.measured_ns)


def _can_stand(name: str, measured: Spread) -> bool:
    """Whether a table can hold it: damaged traces have names of anything, and times of years."""
    return bool(name) and name.isprintable() and measured.median_ns <= MOST_NS


def _told_share(family: str, row: KernelRow, profile: DeviceProfile) -> float | None:
    """At which the model gives the median of ``row``, by bisection: it falls as the share rises."""
    trial = copy.deepcopy(profile)

    def modelled_ns(share: float) -> int:
        setattr(trial.efficiency, family, share)
        return kernel_cost(row.name, row.shape, _without_table(trial)).duration_ns

    base_share = getattr(profile.efficiency, family)
    if modelled_ns(0.9 * base_share) < _LIMITS * modelled_ns(base_share):
        return None
    low, high = _LEAST_SHARE, 1.0
    if not modelled_ns(high) < row.measured.median_ns < modelled_ns(low):
        return None
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if modelled_ns(middle) > row.measured.median_ns else (low, middle)
    found = modelled_ns(high)
    return high if math.isclose(found, row.measured.median_ns, rel_tol=_REACHED) else None


def _median_by_time(told: Sequence[tuple[float, KernelRow]]) -> float | None:
    half = sum(row.total_ns for _, row in told) / 2
    for share, row in sorted(told, key=lambda pair: pair[0]):
        half -= row.total_ns
        if half <= 0:
            return round(share, 4)
    return None


def _modelled_ns(rows: Sequence[KernelRow], core: _core.DeviceProfile) -> int:
    return sum(row.measured.count * kernel_cost(row.name, row.shape, core).duration_ns for row in rows)


def _without_table(profile: DeviceProfile) -> _core.DeviceProfile:
    plain = copy.copy(profile)
    plain.rows = []
    return plain.to_core()


def _series(kernels: Mapping[Kernel, Ints]) -> dict[tuple[str, KernelShape], Ints]:
    """Durations by row of a table."""
    lists: dict[tuple[str, KernelShape], list[Ints]] = defaultdict(list)
    products: dict[tuple[str, KernelShape], list[tuple[Kernel, Ints]]] = defaultdict(list)
    for kernel, durations in kernels.items():
        if kernel.gemm is None:
            told = any(kernel.work)
            shape = kernel_shape(kernel) if told else KernelShape(grid=kernel.grid, block=kernel.block)
            lists[kernel.name, shape].append(durations)
        else:
            m, n, k, batch = _sizes(kernel)
            shape = KernelShape(dtype=_dtype(kernel), m=m, n=n, k=k, batch=batch)
            products[product_name(kernel.name), shape].append((kernel, durations))
    series = {key: np.concatenate(parts) for key, parts in lists.items()}
    for key, parts in products.items():
        whole = [durations for kernel, durations in parts if not _SPLIT.search(kernel.name)]
        added = [durations for kernel, durations in parts if _SPLIT.search(kernel.name)]
        if whole:
            series[key] = np.concatenate(whole) + _share_of(added, sum(map(len, whole)))
    return series


def _share_of(added: Sequence[Ints], launches: int) -> int:
    """What the kernels that add parts up take for each product."""
    return round(sum(int(durations.sum()) for durations in added) / launches)


def _sizes(kernel: Kernel) -> tuple[int, int, int, int]:
    """m, n, k and batch, as the shape of a kernel holds them."""
    gemm = kernel.gemm
    return (0, *kernel.work, 0) if gemm is None else (gemm.m, gemm.n, gemm.k, gemm.batch)


def _dtype(kernel: Kernel) -> str:
    return _DTYPE_NAMES.get(int(kernel.dtype), "none")


def kernel_shape(kernel: Kernel) -> KernelShape:
    """As a timing table looks it up."""
    m, n, k, batch = _sizes(kernel)
    return KernelShape(
        grid=kernel.grid,
        block=kernel.block,
        shared_bytes=kernel.shared_bytes,
        dtype=_dtype(kernel),
        transposes=kernel.transposes,
        m=m,
        n=n,
        k=k,
        batch=batch,
    )
