"""Numbers from outside on their way to the core (what does not fit is a SpareError, never cut or wrapped),
and what is said of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prismcore.errors import SpareError

__all__ = ["Estimate", "estimate", "nanoseconds", "number", "student_t_quantile", "whole"]

_INT64 = (1 << 63) - 1


def whole(name: str, value: Any, *, least: int | None = None, most: int = (1 << 31) - 1) -> int:
    """The value as a plain int, from ``least`` (None: ``-most``) to ``most``."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, np.integer))
        or not (-most if least is None else least) <= value <= most
    ):
        expected = f"of at most {most}" if least is None else f"from {least} to {most}"
        raise SpareError(f"{name} {value!r} found, expected a whole number {expected}")
    return int(value)


def number(name: str, value: Any) -> float:
    """The value as a plain float; NaN and infinities pass, for the core to refuse where they cannot be."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise SpareError(f"{name} {value!r} found, expected a number")
    try:
        return float(value)
    except OverflowError:
        raise SpareError(f"{name} {value!r} found, expected a number of at most 1.8e308") from None


def nanoseconds(name: str, value: Any) -> int:
    """Seconds as whole nanoseconds, the nearest."""
    seconds = number(name, value)
    if not math.isfinite(seconds):
        raise SpareError(f"{name} {seconds!r} found, expected seconds")
    if seconds < 0:
        raise SpareError(f"{name} {seconds} s found, expected 0 or more")
    if seconds * 1e9 >= _INT64:  # before rounding: the product may be infinite
        raise SpareError(f"{name} {seconds} s found, expected less than {_INT64 // 10**9}")
    return round(seconds * 1e9)


@dataclass(kw_only=True, slots=True, frozen=True)
class Estimate:
    """A mean over seeds; NaN where no seed has the value."""

    mean: float
    ci95: float
    """Half width of the 95 % confidence interval (Student's t); NaN with fewer than two values."""


def estimate(values: Sequence[float]) -> Estimate:
    count = len(values)
    if count == 0:
        return Estimate(mean=math.nan, ci95=math.nan)
    mean = math.fsum(values) / count
    if count == 1:
        return Estimate(mean=mean, ci95=math.nan)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    return Estimate(mean=mean, ci95=student_t_quantile(count - 1) * math.sqrt(variance / count))


def student_t_quantile(freedom: int, coverage: float = 0.95) -> float:
    """t with P(-t < T < t) = coverage, for whole degrees of freedom, 1 or more."""
    freedom = min(freedom, 1000)  # beyond, the difference is below 0.1 %
    low, high = 0.0, 1.0
    while _t_coverage(high, freedom) < coverage:
        high *= 2.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        if _t_coverage(middle, freedom) < coverage:
            low = middle
        else:
            high = middle
    return high


def _t_coverage(t: float, freedom: int) -> float:
    # Abramowitz and Stegun 26.7.3 and 26.7.4: a finite sum for whole degrees of freedom.
    angle = math.atan(t / math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for i in range(2 + odd, freedom - 1, 2):
        term *= (i - 1) / i * cosine * cosine
        total += term
    return 2.0 / math.pi * (angle + sine * total) if odd else sine * total
