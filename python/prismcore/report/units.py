"""Numbers for people: times, bytes and shares, with the unit beside them."""

from __future__ import annotations

from prismcore.units import TIMES, format_ns, plural

__all__ = [
    "column_scale",
    "format_bytes",
    "format_count",
    "format_field",
    "format_ns",
    "format_share",
    "format_wall",
    "plural",
]

_BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def format_wall(seconds: float) -> str:
    """Time that a run took here: ``1.4 s``, ``35 ms``; it differs from run to run, so few digits."""
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.001 else "under 1 ms"


def format_bytes(value: int | float) -> str:
    """``1536`` as ``1.50 KiB``."""
    for scale, unit in _BYTES:
        if abs(value) >= scale:
            return f"{value / scale:.2f} {unit}"
    return f"{value:.0f} B"


def format_share(value: float) -> str:
    """``0.1234`` as ``12.34 %``; a share that is not zero never reads as zero."""
    if 0 < abs(value) < 0.0001:
        return "< 0.01 %"
    return f"{100 * value:.2f} %"


def format_count(value: int) -> str:
    """``1234567`` as ``1,234,567``."""
    return f"{value:,}"


def column_scale(name: str, largest: float) -> tuple[float, str]:
    """(divisor, unit) for columns whose name tells their unit; ``(1, "")`` for others.

    The unit is a small one, so that values far below the largest keep their digits.
    """
    scales: tuple[tuple[float, str], ...] = ()
    room = 1.0
    if name.endswith("_ns"):
        scales, room = (*TIMES, (1, "ns")), 10
    elif name.endswith("_bytes"):
        scales, room = (*_BYTES, (1, "B")), 128
    for scale, unit in scales:
        if largest >= room * scale or scale == 1:
            return scale, unit
    return 1, ""


def format_field(name: str, value: object) -> str:
    """A field by the unit in its name (``_ns``, ``_bytes``, ``_s``)."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, (int, float)):
        if name.endswith("_ns"):
            return format_ns(value)
        if name.endswith("_bytes"):
            return format_bytes(value)
        if name.endswith("_s"):
            return f"{value:.2f} s"
        if isinstance(value, int):
            return format_count(value)
        return f"{value:.4g}"
    return str(value)
