"""How groups fail: a distribution by name, or a recorded trace."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass

from prismcore.errors import SpareError
from prismcore.spare.numbers import nanoseconds, whole

__all__ = ["FailureTrace", "Lifetime", "parse_lifetime"]

_INT64 = (1 << 63) - 1


@dataclass(kw_only=True, slots=True, frozen=True)
class Lifetime:
    """The time between two failures of a group: ``weibull`` with its shape, or ``exponential``.

    The mean is not part of it: it is the fleet's MTBF times the number of groups.
    """

    kind: str = "weibull"
    shape: float = 0.78


def parse_lifetime(text: str) -> Lifetime:
    """``weibull:SHAPE``, ``weibull`` (the paper's shape, 0.78) or ``exponential``."""
    kind, _, shape = text.partition(":") if isinstance(text, str) else ("", "", "")
    if kind == "exponential" and not shape:
        return Lifetime(kind="exponential", shape=1.0)
    if kind == "weibull":
        try:
            return Lifetime(kind="weibull", shape=float(shape) if shape else 0.78)
        except ValueError:
            pass
    raise SpareError(f"distribution {text!r} found, expected weibull:SHAPE or exponential")


@dataclass(kw_only=True, slots=True, frozen=True)
class FailureTrace:
    """Failures of a fleet: which group, and when (nanoseconds since training began).

    Failures of a group that is down or restarts are skipped, or make its restart longer, as any other.
    """

    failures: tuple[tuple[int, int], ...]

    def checked(self) -> list[tuple[int, int]]:
        """As the core takes them. Raises SpareError for what is no pair of whole numbers."""
        try:
            pairs = [(group, time_ns) for group, time_ns in self.failures]
        except (TypeError, ValueError) as error:
            raise SpareError(f"failure trace: {error}: expected pairs of a group and a time in ns") from error
        return [
            (whole("group of a traced failure", group), whole("time of a traced failure", ns, most=_INT64))
            for group, ns in pairs
        ]

    @classmethod
    def read_csv(cls, path: str | os.PathLike[str]) -> FailureTrace:
        """Rows ``group,seconds``; a first row of names, neither of them a number, is skipped.

        Raises:
            SpareError: the file cannot be read, a row is no such pair, or there is none; names the row.
        """
        failures: list[tuple[int, int]] = []
        try:
            with open(path, newline="", encoding="utf-8-sig") as file:
                for number, row in enumerate(csv.reader(file), start=1):
                    if not row or (number == 1 and _is_names(row)):
                        continue
                    failures.append(_failure(path, number, row))
        except (OSError, TypeError, ValueError, csv.Error) as error:
            raise SpareError(f"failure trace {path!s} cannot be read: {error}") from error
        if not failures:
            raise SpareError(f"failure trace {os.fspath(path)} without failures, expected rows group,seconds")
        return cls(failures=tuple(failures))


def _is_names(row: list[str]) -> bool:
    """Two names; a row with a number in it is a failure, well formed or not."""
    return len(row) == 2 and not any(_is_number(field) for field in row)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _failure(path: str | os.PathLike[str], number: int, row: list[str]) -> tuple[int, int]:
    try:
        group, seconds = row
        return whole("group", int(group)), nanoseconds("time", float(seconds))
    except (ValueError, SpareError) as error:
        raise SpareError(
            f"failure trace {os.fspath(path)}, row {number}: {','.join(row)!r} found, "
            f"expected group,seconds ({error})"
        ) from error
