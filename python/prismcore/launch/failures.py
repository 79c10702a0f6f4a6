"""Turns the end of a rank into an error that says what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prismcore.adapters import describe_rank
from prismcore.errors import (
    CollectError,
    OutOfMemoryError,
    PrismError,
    RankFailedError,
    RoutingError,
    RuleError,
)
from prismcore.launch.launcher import RankEnd
from prismcore.launch.need import ObjectNeed
from prismcore.launch.processes import signal_name
from prismcore.launch.protocol import ENDED_OUT_OF_MEMORY
from prismcore.units import format_s, plural

__all__ = ["failure_of", "told_of_slow"]

_NO_COUNTS = "Split sizes doesn't match"
"""Torch's words in ``all_to_all_single``."""

_TOLD_BY_US = (CollectError.__name__, RoutingError.__name__, RuleError.__name__)


def failure_of(end: RankEnd, *, world_size: int, timeout_s: float) -> PrismError | None:
    """The error that the end of a rank stands for; None where it ended as it should."""
    if end.timed_out:
        how = f"was ended after {format_s(timeout_s)} (limit of a rank){told_of_slow(end.slow_imports)}"
        return _failed(end, how)
    summary = end.summary
    if summary is not None and summary["end"] == ENDED_OUT_OF_MEMORY:
        return _out_of_memory(end, summary, world_size)
    if end.exit_code < 0:
        return _failed(end, f"was killed by {signal_name(-end.exit_code)}")
    if summary is not None and (summary.get("error") or {}).get("type") in _TOLD_BY_US:
        return CollectError(f"rank {end.rank}: {summary['error']['text']}")
    if end.exit_code > 0:
        return _failed(end, f"ended with exit code {end.exit_code}")
    if summary is not None and summary.get("need") is not None:
        return CollectError(
            f"{ObjectNeed(**summary['need']).told(end.rank)}, and that rank does not run here"
        )
    if summary is None:
        return _failed(end, "ended without leaving a record")
    if not summary["has_process_group"]:
        return CollectError(
            f"rank {end.rank}: the program ended without a process group, so there is nothing between ranks "
            "to map; expected a call of torch.distributed.init_process_group, as under torchrun"
        )
    return None


def told_of_slow(modules: Sequence[str]) -> str:
    """What else may be behind a rank that does nothing; empty where ``modules`` is."""
    if not modules:
        return ""
    names = ", ".join(modules)
    return f"; importing {names} took too long to do it once for all ranks, so each rank imports it itself"


def _failed(end: RankEnd, how: str) -> RankFailedError:
    lines = end.last_lines()
    how += _hint(end, lines)
    if len(lines) <= 1:
        return RankFailedError(f"rank {end.rank} {how}: {lines[0] if lines else 'it wrote nothing'}")
    return RankFailedError(f"rank {end.rank} {how}; its last lines:\n  " + "\n  ".join(lines))


def _hint(end: RankEnd, lines: Sequence[str]) -> str:
    """What else than the program may be behind it."""
    hint = ""
    rules: Mapping[str, int] = (end.summary or {}).get("rules", {})
    used = [f"{name.partition(' ')[2]} ({plural(uses, 'call')})" for name, uses in rules.items() if uses]
    if used:
        hint += f", after rules gave it what it received: {', '.join(used)}"
    if any(_NO_COUNTS in line for line in lines):
        hint += ", where counts that kernels would compute read as zero (docs/guide-experts.md)"
    return hint


def _out_of_memory(end: RankEnd, summary: Mapping[str, Any], world_size: int) -> OutOfMemoryError:
    error = summary["error"]
    place = describe_rank(places_of(summary.get("groups", []), end.rank, world_size))
    failed = (summary.get("report") or {}).get("out_of_memory") or {}
    asked = failed.get("asked_bytes")
    told = f"asked for {_gib(asked)}" if asked else _tried(error["text"])
    op = f"{error['where']}" + (f" in {error['module']}" if error["module"] else "")
    op += f" of layer {error['layer']}" if error.get("layer") is not None else ""
    routing = summary.get("routing")
    under = f" under routing {routing['rule']}" if routing else ""
    return OutOfMemoryError(
        f"rank {end.rank}{f' ({place})' if place else ''} is out of memory{under} at {op}: {told}, "
        f"held {_gib(error['allocated_bytes'])} allocated and {_gib(error['reserved_bytes'])} reserved of "
        f"{_gib(error['capacity_bytes'])}; try a smaller micro-batch, recomputation or more parallelism"
    )


def _tried(text: str) -> str:
    """``Tried to allocate 2.00 GiB.`` of torch's message."""
    found = text.partition("Tried to allocate ")[2].partition(". ")[0]
    return f"asked for {found}" if found else text


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"


def places_of(
    rows: list[tuple[str, str | None, Sequence[int]]], rank: int, world_size: int
) -> dict[str, tuple[int, int]]:
    """Position and size of a rank by description of its groups."""
    places = {"default_pg": (rank, world_size)}
    for description, _, ranks in rows:
        if rank in ranks:
            places.setdefault(description, (list(ranks).index(rank), len(ranks)))
    return places
