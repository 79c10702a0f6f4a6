"""What each call took by events, and how that agrees with its kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from prismcore.calibrate.kernels import product_name
from prismcore.calibrate.samples import Samples, Spread
from prismcore.measure.shapes import parse_shape

__all__ = ["Timing", "timings"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """A call, on the device, by events. ``kernel_ns``: median of the kernel of a call that is one product,
    as the profiler or the virtual GPU's record tells it; None elsewhere."""

    shape: int
    point: str
    call: str
    family: str
    measured: Spread
    covered: bool
    kernel_ns: int | None

    @property
    def scatter(self) -> float:
        """Ninetieth percentile over the tenth, less one."""
        return self.measured.p90_ns / max(self.measured.p10_ns, 1) - 1


def timings(report: dict[str, Any], samples: Samples) -> list[Timing]:
    products: dict[tuple[str, str, tuple[int, ...]], list[int]] = {}
    for kernel, durations in samples.kernels.items():
        if kernel.gemm is not None:
            sizes = (kernel.gemm.m, kernel.gemm.n, kernel.gemm.k, max(kernel.gemm.batch, 1))
            key = (product_name(kernel.name), kernel.dtype.name.lower(), sizes)
            products.setdefault(key, []).extend(durations.tolist())
    out = []
    for entry in report["points"]:
        kernel_ns = None
        if entry["product"] is not None:
            dtype = parse_shape(report["shapes"][entry["shape"]]).dtype
            name, kind = ("product:tf32", "float32") if dtype == "tf32" else ("product", dtype)
            if found := products.get((name, kind, tuple(entry["product"]))):
                kernel_ns = int(np.median(found))
        out.append(
            Timing(
                shape=entry["shape"],
                point=entry["point"],
                call=entry["call"],
                family=entry["family"],
                measured=Spread.of(np.array(entry["durations_ns"], dtype=np.int64)),
                covered=entry["covered"],
                kernel_ns=kernel_ns,
            )
        )
    return out
