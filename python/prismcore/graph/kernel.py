"""What a kernel is, apart from when it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prismcore.errors import GraphError
from prismcore.graph.op import DataType
from prismcore.graph.values import text, u32, whole

__all__ = ["CoreShape", "Gemm", "Kernel"]

#: Grid, block, shared bytes, dtype, transposes, (m, n, k, batch), as the core takes them.
CoreShape = tuple[tuple[int, int, int], tuple[int, int, int], int, int, int, tuple[int, int, int, int]]

_FromCore = tuple[Sequence[int], Sequence[int], int, int, int, Sequence[int]]


@dataclass(kw_only=True, slots=True, frozen=True)
class Gemm:
    """Dimensions of a matrix product: ``batch`` times [m, k] x [k, n]."""

    m: int
    n: int
    k: int
    batch: int = 1


@dataclass(kw_only=True, slots=True, frozen=True)
class Kernel:
    """Name, launch shape and, for a matrix product, dimensions.

    ``dtype`` is the operand type of a product, ``transposes`` 1 for A, 2 for B, 3 for both.
    """

    name: str
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0
    dtype: DataType = DataType.NONE
    transposes: int = 0
    gemm: Gemm | None = None
    work: tuple[int, int] = (0, 0)
    """Of a kernel that is no product, what its arguments told of its work: elements and 0, or rows and
    width; zeros where they told nothing."""

    @staticmethod
    def from_core(name: str, shape: _FromCore) -> Kernel:
        """A kernel from the shape as the core gives it."""
        (gx, gy, gz), (bx, by, bz), shared_bytes, dtype, transposes, (m, n, k, batch) = shape
        return Kernel(
            name=name,
            grid=(gx, gy, gz),
            block=(bx, by, bz),
            shared_bytes=shared_bytes,
            dtype=DataType(dtype),
            transposes=transposes,
            gemm=Gemm(m=m, n=n, k=k, batch=batch) if m else None,
            work=(0, 0) if m else (n, k),
        )

    def core_shape(self) -> CoreShape:
        """The shape as the core takes it. Raises GraphError for a figure that cannot be."""
        what = f"kernel {text(self.name, 'kernel name')!r}:"
        gemm = self.gemm
        sizes = (gemm.m, gemm.n, gemm.k, gemm.batch) if gemm else (0, *self.work, 0)
        m, n, k, batch = (
            whole(size, f"{what} {name}") for name, size in zip(("m", "n", "k", "batch"), sizes, strict=True)
        )
        try:
            dtype = DataType(self.dtype)
        except ValueError:
            raise GraphError(f"{what} dtype {self.dtype!r} found, expected one of DataType") from None
        return (
            _triple(self.grid, f"{what} grid"),
            _triple(self.block, f"{what} block"),
            u32(self.shared_bytes, f"{what} shared_bytes"),
            int(dtype),
            whole(self.transposes, f"{what} transposes", high=3),
            (m, n, k, batch),
        )


def _triple(values: tuple[int, int, int], what: str) -> tuple[int, int, int]:
    try:
        x, y, z = values
    except (TypeError, ValueError):
        raise GraphError(f"{what} {values!r} found, expected three whole numbers") from None
    return u32(x, what), u32(y, what), u32(z, what)
