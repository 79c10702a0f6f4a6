"""Values of the command line: rank lists, times, perturbations, numbers in a range.

Each function is an argparse ``type``: it raises ``argparse.ArgumentTypeError`` with what was found
and what is expected, which ends in exit code 2.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from prismcore.errors import RoutingError
from prismcore.rank_list import MAX_RANK, parse_ranks

_UNITS_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_WHOLE = re.compile(r"[0-9]{1,18}")
_TIME = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,19})?)(ns|us|ms|s)")
_SPAN = r"(?:@(?P<start>[^-@]+)-(?P<end>[^-@]+))?"
_SLOW_RANK = re.compile(rf"(?P<rank>[0-9]{{1,18}}):(?P<factor>[^@]+){_SPAN}")
_CLOCK_CURVE = re.compile(r"(?P<rank>[0-9]{1,18}):(?P<file>.+\.csv)", re.IGNORECASE)
_SLOW_LINK = re.compile(rf"(?P<rank>[0-9]{{1,18}})-(?P<other>[0-9]{{1,18}}|\*):(?P<factor>[^@]+){_SPAN}")
_JITTER = re.compile(r"(?P<seed>[0-9]{1,18}):(?P<sigma>.+)")
_NUMBER = re.compile(r"[+-]?[0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,4})?")
MOST_SECONDS = 1e7  # 115 days
MOST_FACTOR = 1e6


@dataclass(kw_only=True, slots=True, frozen=True)
class SlowRankFlag:
    """``--slow-rank R:FACTOR[@t0-t1]``: kernels of `rank` take `factor` times as long."""

    rank: int
    factor: float
    from_ns: int | None = None
    """Of the rank's device time; None: from the start."""
    to_ns: int | None = None


@dataclass(kw_only=True, slots=True, frozen=True)
class ClockCurveFlag:
    """``--slow-rank R:FILE.csv``: kernels of `rank` follow the clock curve of the file."""

    rank: int
    file: Path


@dataclass(kw_only=True, slots=True, frozen=True)
class SlowLinkFlag:
    """``--slow-link A-B:FACTOR[@t0-t1]``: transfers between the two take `factor` times as long."""

    rank: int
    other: int | None
    """None: every rank."""
    factor: float
    from_ns: int | None = None
    to_ns: int | None = None


@dataclass(kw_only=True, slots=True, frozen=True)
class FailuresFlag:
    """``--fail-ranks LIST@t``: these ranks are lost at `at_ns`."""

    ranks: tuple[int, ...]
    at_ns: int


@dataclass(kw_only=True, slots=True, frozen=True)
class JitterFlag:
    """``--jitter SEED:SIGMA``."""

    seed: int
    sigma: float


def rank_list(text: str) -> list[int]:
    """``0,8,16-31`` as ascending ranks without duplicates."""
    try:
        return parse_ranks(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def time_ns(text: str) -> int:
    """``1.5ms`` as integer nanoseconds; the unit (ns, us, ms, s) is required."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"found time {text!r}, expected a number and ns, us, ms or s: 1.5ms")
    value = Decimal(match[1]) * _UNITS_NS[match[2]]
    if value != value.to_integral_value():
        raise argparse.ArgumentTypeError(f"time {text!r} is not a whole number of nanoseconds")
    if value >= 2**63:
        raise argparse.ArgumentTypeError(f"time {text!r} is longer than 292 years")
    return int(value)


def positive_time_ns(text: str) -> int:
    """As :func:`time_ns`, above 0."""
    value = time_ns(text)
    if value == 0:
        raise argparse.ArgumentTypeError(f"found time {text!r}, expected more than 0")
    return value


def slow_rank(text: str) -> SlowRankFlag | ClockCurveFlag:
    """``3:1.5``, ``3:1.5@10ms-2s`` or ``3:curve.csv``."""
    expected = "expected R:FACTOR[@t0-t1] or R:FILE.csv, for instance 3:1.5, 3:1.5@10ms-2s or 3:hot.csv"
    curve = _CLOCK_CURVE.fullmatch(text.strip())
    if curve is not None:
        return ClockCurveFlag(rank=_rank(curve["rank"], text), file=Path(curve["file"]))
    match = _SLOW_RANK.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"found {text!r}, {expected}")
    factor = _factor(match["factor"], text, expected)
    if not 0 < factor <= MOST_FACTOR:  # also refuses nan
        raise argparse.ArgumentTypeError(f"factor {match['factor']} in {text!r} is not in (0, 1e6]")
    rank = _rank(match["rank"], text)
    start, end = _span(match, text)
    return SlowRankFlag(rank=rank, factor=factor, from_ns=start, to_ns=end)


def slow_link(text: str) -> SlowLinkFlag:
    """``0-8:4``, ``0-*:4`` or ``0-8:4@10ms-2s``."""
    expected = "expected A-B:FACTOR[@t0-t1], for instance 0-8:4, 0-*:4 or 0-8:4@10ms-2s"
    match = _SLOW_LINK.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"found {text!r}, {expected}")
    factor = _factor(match["factor"], text, expected)
    if not 1 <= factor <= MOST_FACTOR:
        raise argparse.ArgumentTypeError(f"factor {match['factor']} in {text!r} is not in [1, 1e6]")
    rank = _rank(match["rank"], text)
    other = None if match["other"] == "*" else _rank(match["other"], text)
    if rank == other:
        raise argparse.ArgumentTypeError(f"found {text!r}: a link joins two ranks, not one with itself")
    start, end = _span(match, text)
    return SlowLinkFlag(rank=rank, other=other, factor=factor, from_ns=start, to_ns=end)


def jitter(text: str) -> JitterFlag:
    """``7:0.05``: seed and sigma."""
    expected = "expected SEED:SIGMA with a sigma from 0 to 2, for instance 7:0.05"
    match = _JITTER.fullmatch(text.strip())
    if match is None or not _NUMBER.fullmatch(match["sigma"]) or not 0 <= float(match["sigma"]) <= 2:
        raise argparse.ArgumentTypeError(f"found {text!r}, {expected}")
    return JitterFlag(seed=int(match["seed"]), sigma=float(match["sigma"]))


def failures(text: str) -> FailuresFlag:
    """``0,8-15@2s``."""
    ranks, at, time = text.strip().partition("@")
    if not at:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected LIST@t, for instance 0,8-15@2s")
    return FailuresFlag(ranks=tuple(rank_list(ranks)), at_ns=time_ns(time))


def _factor(factor: str, text: str, expected: str) -> float:
    try:
        return float(factor)
    except ValueError:
        raise argparse.ArgumentTypeError(f"found factor {factor!r} in {text!r}, {expected}") from None


def _rank(digits: str, text: str) -> int:
    rank = int(digits)
    if rank > MAX_RANK:
        raise argparse.ArgumentTypeError(f"rank {rank} in {text!r} is above the largest, {MAX_RANK}")
    return rank


def _span(match: re.Match[str], text: str) -> tuple[int | None, int | None]:
    if match["start"] is None:
        return None, None
    start = 0 if match["start"].strip() == "0" else time_ns(match["start"])
    end = time_ns(match["end"])
    if start >= end:
        raise argparse.ArgumentTypeError(f"the span in {text!r} ends before it starts")
    return start, end


def output_path(text: str) -> Path:
    """The name of a file to write."""
    if not text:
        raise argparse.ArgumentTypeError("found an empty name, expected that of a file to write")
    return Path(text)


def add_graph_output(parser: argparse.ArgumentParser) -> None:
    """``-o JOB.prism``, of commands that write a graph."""
    parser.add_argument(
        "-o",
        "--output",
        type=output_path,
        required=True,
        metavar="JOB.prism",
        help="the graph to write",
    )


def module_name(text: str) -> str:
    """``package.module``."""
    if not all(part.isidentifier() for part in text.split(".")):
        raise argparse.ArgumentTypeError(
            f"found {text!r}, expected the name of a module, such as package.module"
        )
    return text


def positive_int(text: str) -> int:
    """A whole number of at least 1."""
    return _whole(text, 1)


def natural_int(text: str) -> int:
    """A whole number of at least 0."""
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    if _WHOLE.fullmatch(text.strip()) is None or int(text) < least:
        found = text if len(text) <= 40 else f"{text[:37]}..."
        raise argparse.ArgumentTypeError(
            f"found {found!r}, expected a whole number of at least {least} and at most 18 digits"
        )
    return int(text)


def routing_rule(text: str) -> str:
    """``hot-experts:heat=8``, with all parameters of the preset."""
    from prismcore.routing import parse_rule

    try:
        return str(parse_rule(text))
    except RoutingError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def whole_number(low: int, high: int) -> Callable[[str], int]:
    """Parser of a whole number from `low` to `high`."""

    def parse(text: str) -> int:
        if _WHOLE.fullmatch(text.strip()) and low <= int(text) <= high:
            return int(text)
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a whole number from {low} to {high}")

    return parse


def seconds(text: str) -> float:
    """A plain number of seconds, for flags whose name ends in ``-s``; 0 is one."""
    return _seconds(text, "from 0")


def positive_seconds(text: str) -> float:
    """As :func:`seconds`, above 0."""
    value = _seconds(text, "above 0")
    if value == 0:
        raise argparse.ArgumentTypeError(f"found {text!r}, {_expected_seconds('above 0')}")
    return value


def share(text: str) -> float:
    """A number from 0 to 1."""
    if _NUMBER.fullmatch(text.strip()) and 0 <= float(text) <= 1:
        return float(text)
    raise argparse.ArgumentTypeError(f"found {text!r}, expected a number from 0 to 1")


def _seconds(text: str, low: str) -> float:
    if _NUMBER.fullmatch(text.strip()) and 0 <= float(text) <= MOST_SECONDS:
        return float(text)
    raise argparse.ArgumentTypeError(f"found {text!r}, {_expected_seconds(low)}")


def _expected_seconds(low: str) -> str:
    return f"expected seconds without a unit, {low} to {MOST_SECONDS:g}"
