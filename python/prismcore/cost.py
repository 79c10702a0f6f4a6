"""What a kernel costs on a device: the core's cost model, with names and shapes in Python.

The model: a timing table first (rows measured on a real device); else ``kernel_floor_ns`` plus the
largest of operations / (peak * efficiency), bytes / (bandwidth * efficiency) and integer instructions
over their rate, the efficiency being the family's in the device profile; GEMMs in tiles and waves over
the SMs. A kernel that no rule knows
costs the floor and is called ``unknown``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from prismcore import _core
from prismcore.errors import ProfileError

__all__ = [
    "DTYPES",
    "KernelCost",
    "KernelShape",
    "KernelWork",
    "kernel_cost",
    "kernel_families",
    "kernel_work",
]

#: Operand types of GEMMs by name, numbered as the core numbers them.
DTYPES: Final[dict[str, int]] = {
    "int8": 0,
    "uint8": 1,
    "int32": 2,
    "uint32": 3,
    "int64": 4,
    "uint64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bfloat16": 9,
    "float8e4m3": 10,
    "float8e5m2": 11,
    "none": 255,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelShape:
    """Launch shape of a kernel; for a GEMM (m > 0) its dimensions and operand type.

    Where m is 0, n and k hold counts that the launch's arguments told: elements, or rows and width.

    Raises:
        ProfileError: from :meth:`to_core`, where a figure cannot be.
    """

    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0
    dtype: str = "none"
    transposes: int = 0
    m: int = 0
    n: int = 0
    k: int = 0
    batch: int = 0

    def to_core(self) -> _core.KernelShape:
        """The same shape for the C++ core."""
        if self.dtype not in DTYPES:
            raise ProfileError(f"dtype: found {self.dtype!r}, expected one of {', '.join(DTYPES)}")
        try:
            return _core.KernelShape(
                grid=self.grid,
                block=self.block,
                shared_bytes=self.shared_bytes,
                dtype=DTYPES[self.dtype],
                transposes=self.transposes,
                m=self.m,
                n=self.n,
                k=self.k,
                batch=self.batch,
            )
        except TypeError as error:
            raise ProfileError(
                f"kernel shape: found {self}, expected 32-bit counts of grid and block, 64-bit dimensions"
            ) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelCost:
    """Duration (ns), where it comes from (``table``, ``model``, ``unknown``) and the kernel's family.

    ``assumed``: the model had to assume a count that name and launch do not tell.
    """

    duration_ns: int
    provenance: str
    family: str
    assumed: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelWork:
    """Operations, bytes to and from device memory, and output elements of a kernel that is no GEMM.

    ``integers``: integer instructions of all threads, for addresses of strided and indexed elements.
    """

    family: str
    known: bool
    assumed: bool
    operations: float
    bytes: float
    integers: float
    elements: float


def kernel_families() -> list[str]:
    """Names of the families, in the order of their numbers; the first is ``unknown``."""
    return _core.kernel_families()


def kernel_cost(name: str | bytes, shape: KernelShape, profile: _core.DeviceProfile) -> KernelCost:
    """Cost of one launch of the kernel ``name`` (mangled, or as c++filt and Kineto spell it).

    ``profile`` comes from :meth:`prismcore.profiles.device.DeviceProfile.to_core`. A launch that
    cannot be (negative dimensions) is ``unknown``; ProfileError if the core cannot hold it.
    """
    cost = _core.kernel_cost(_bytes(name), shape.to_core(), profile)
    return KernelCost(
        duration_ns=cost.duration_ns, provenance=cost.provenance, family=cost.family, assumed=cost.assumed
    )


def kernel_work(name: str | bytes, shape: KernelShape) -> KernelWork:
    """How much the kernel ``name`` does in this launch; ``known`` is False where no rule knows it."""
    work = _core.kernel_work(_bytes(name), shape.to_core())
    return KernelWork(
        family=work.family,
        known=work.known,
        assumed=work.assumed,
        operations=work.operations,
        bytes=work.bytes,
        integers=work.integers,
        elements=work.elements,
    )


def _bytes(name: str | bytes) -> bytes:
    # Text that UTF-8 cannot hold names no kernel, and the core says so.
    return name if isinstance(name, bytes) else name.encode(errors="surrogatepass")
