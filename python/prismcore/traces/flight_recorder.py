"""Reads dumps of torch's flight recorder: one file a rank, pickled or JSON, versions 1.0 to 2.10.

Layout: ``c10d/FlightRecorder.hpp`` of torch 2.3 to 2.14. A dump is a ring of the latest calls of
torch.distributed: who was called when, with which sizes, how far it came, and, where the run was timed,
how long it took.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prismcore.errors import TraceError
from prismcore.graph import DataType, Provenance
from prismcore.graph.op import MOST_BYTES
from prismcore.graph.origin import MARK, PROVENANCE, provenance_named
from prismcore.rank_list import MAX_RANK, format_ranks
from prismcore.traces.json_files import read_limited
from prismcore.traces.plain_pickle import load_plain
from prismcore.traces.plain_values import distinct_ranks, whole
from prismcore.traces.trace_files import TraceFile, read_trace_files
from prismcore.traces.trace_formats import OtherFormatError

__all__ = ["STATES", "Entry", "FlightRecord", "read_flight_records"]

#: How far a call came, in order.
STATES = ("scheduled", "started", "completed")

_DTYPES = {
    "float": (DataType.FLOAT32, 4), "half": (DataType.FLOAT16, 2), "bfloat16": (DataType.BFLOAT16, 2),
    "double": (DataType.FLOAT64, 8), "long": (DataType.INT64, 8), "int": (DataType.INT32, 4),
    "short": (DataType.NONE, 2), "byte": (DataType.UINT8, 1), "char": (DataType.INT8, 1),
    "bool": (DataType.UINT8, 1), "uint32": (DataType.UINT32, 4), "uint64": (DataType.UINT64, 8),
    "float8_e4m3fn": (DataType.FLOAT8E4M3, 1), "float8_e5m2": (DataType.FLOAT8E5M2, 1),
    "complexfloat": (DataType.NONE, 8), "complexdouble": (DataType.NONE, 16),
}  # fmt: skip
_ENDING = re.compile(r"(?:\.(?:pickle|pkl|json|gz|bin))+$")
_MESSAGE = re.compile(r"(send|recv)\s+(\d{1,8})\s*(?:->|<-)\s*(\d{1,8})")


@dataclass(kw_only=True, slots=True)
class Entry:
    """A call of torch.distributed; times are ns, None where they were not seen."""

    record: int  #: number in the life of its rank
    group: str  #: name of the process group
    description: str
    number: int  #: in the order of its group
    name: str  #: ``all_reduce``, ``send``, ``coalesced``, ...
    message: bool  #: a send or receive
    peer: int | None  #: of one: place of the other side in the group
    state: str  #: one of ``STATES``; ``completed`` where it was retired
    created_ns: int
    started_ns: int | None
    completed_ns: int | None
    duration_ns: int | None  #: where the run was timed
    bytes: int  #: the larger of what goes in and out
    dtype: DataType
    provenance: Provenance | None  #: of an exported replay: where its duration comes from


@dataclass(kw_only=True, slots=True)
class FlightRecord:
    """The dump of one rank."""

    path: str
    rank: int
    version: str
    members: dict[str, tuple[int, ...]]  #: by name of the group, of those that the rank is in
    entries: list[Entry]
    mark: Any = None  #: ``graph.origin.MARK`` of an exported replay
    warnings: list[str] = field(default_factory=list)


@dataclass(kw_only=True, slots=True)
class _Dump:
    """A file before its rank is known."""

    path: str
    version: str
    members: dict[str, tuple[int, ...]]
    entries: list[Entry]
    mark: Any
    warnings: list[str]


def read_flight_records(paths: Sequence[Path]) -> list[FlightRecord]:
    """The dumps of a job, by rank. A folder or a tar archive stands for all dumps in it; other files there
    are told in a warning.

    A rank is the last number of its file's name that its groups have as a member (names hold those of
    hosts as well); else the one member of all its groups that no other file is.

    Raises TraceError where a file cannot be read, is no such dump, or its rank cannot be told.
    """
    if not paths:
        raise TraceError("no dumps given, expected one file a rank")
    dumps, warnings = read_trace_files([Path(path) for path in paths], "flight-recorder", _read)
    dumps[0].warnings += warnings
    records: dict[int, FlightRecord] = {}
    waiting: list[tuple[_Dump, set[int] | None]] = []
    for dump in dumps:
        possible = _possible(dump)
        named = [int(n) for n in re.findall(r"\d{1,8}", _ENDING.sub("", Path(dump.path).name))]
        rank = next((n for n in reversed(named) if possible is None or n in possible), None)
        if rank is None:
            waiting.append((dump, possible))
        else:
            _place(records, rank, dump)
    for dump, possible in sorted(waiting, key=lambda w: len(w[1] or ())):
        left = sorted((possible or set()) - set(records))
        if len(left) != 1:
            told = f"it is one of ranks {format_ranks(left)}" if left else "nor do its groups tell it"
            raise TraceError(
                f"{dump.path}: its rank is not told by its name, and {told}; expected a name that ends in "
                "it, as nccl_trace_rank_3"
            )
        dump.warnings.append(
            f"{dump.path}: its name does not tell its rank; it is taken as {left[0]}, the one that is left "
            "of its groups"
        )
        _place(records, left[0], dump)
    return [records[rank] for rank in sorted(records)]


def _place(records: dict[int, FlightRecord], rank: int, dump: _Dump) -> None:
    if rank > MAX_RANK:
        raise TraceError(f"{dump.path}: rank {rank:,} found, expected 0 to {MAX_RANK:,}")
    if rank in records:
        raise TraceError(f"{dump.path}: rank {rank} found, which {records[rank].path} is as well")
    records[rank] = FlightRecord(
        path=dump.path,
        rank=rank,
        version=dump.version,
        members=dump.members,
        entries=dump.entries,
        mark=dump.mark,
        warnings=dump.warnings,
    )


def _possible(dump: _Dump) -> set[int] | None:
    """Ranks that are in all groups of the dump; None: it has no groups with members."""
    sets = [set(members) for members in dump.members.values()]
    return set.intersection(*sets) if sets else None


def _read(file: TraceFile) -> _Dump:
    path = file.name
    try:
        with file.path.open("rb") as raw:
            data = read_limited(raw, path)
    except (OSError, EOFError) as error:
        raise TraceError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except Exception as error:  # zlib.error, which is no OSError
        if type(error).__name__ != "error":
            raise
        raise TraceError(f"{path}: cannot be read: {error}") from error
    if data[:1] in (b"{", b"["):
        try:
            dump = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise TraceError(f"{path}: no JSON: {error}") from error
    else:
        try:
            dump = load_plain(data, path)
        except TraceError as error:
            if data[:1] == b"\x80":  # as torch's pickles begin
                raise
            raise OtherFormatError(str(error)) from error
    if not isinstance(dump, dict) or not isinstance(dump.get("entries"), (list, tuple)):
        raise OtherFormatError(
            f"{path}: no list of entries found, expected a dump of torch's flight recorder"
        )
    entries, damaged = [], 0
    for entry in dump["entries"]:
        plain = _entry(entry)
        if plain is None:
            damaged += 1
        else:
            entries.append(plain)
    entries.sort(key=lambda entry: entry.record)
    warnings = []
    if damaged:
        warnings.append(f"{path}: {damaged:,} entries without a name, a number or a time are left out")
    if not entries:
        warnings.append(f"{path}: it holds no calls")
    distinct = len({entry.record for entry in entries})
    if distinct < len(entries):
        raise TraceError(
            f"{path}: {len(entries):,} calls with {distinct:,} different record ids found, expected each once"
        )
    if entries and entries[-1].record - entries[0].record + 1 > len(entries):
        lost = entries[-1].record - entries[0].record + 1 - len(entries)
        warnings.append(f"{path}: {lost:,} calls are missing between its first and last")
    return _Dump(
        path=path,
        version=str(dump.get("version", "none"))[:20],
        members=_groups(path, dump.get("pg_config"), entries, warnings),
        entries=entries,
        mark=dump.get(MARK),
        warnings=warnings,
    )


def _groups(
    path: str, config: Any, entries: Sequence[Entry], warnings: list[str]
) -> dict[str, tuple[int, ...]]:
    groups: dict[str, tuple[int, ...]] = {}
    unknown = 0
    for uid, told in config.items() if isinstance(config, dict) else ():
        listed = told.get("ranks") if isinstance(told, dict) else told
        if isinstance(listed, str):
            try:
                listed = json.loads(listed)
            except (ValueError, RecursionError):
                continue
        ranks = [_whole(rank) for rank in listed] if isinstance(listed, (list, tuple)) else []
        members = distinct_ranks(ranks)
        if members is not None:
            groups[str(uid)] = members
        elif ranks:
            unknown += 1
    if unknown:
        warnings.append(
            f"{path}: the members of {unknown:,} process groups cannot be those of a group (not ranks, one "
            f"twice, or beyond {MAX_RANK:,}), and are taken as not told"
        )
    if "" in groups:  # of torch 2.14 on gloo: the default group without its name
        names = {entry.group for entry in entries if entry.description == "default_pg"}
        groups |= dict.fromkeys(names - set(groups), groups[""])
    return groups


def _entry(entry: Any) -> Entry | None:
    if not isinstance(entry, dict):
        return None
    group = entry.get("process_group", entry.get("pg_id", ""))
    name, description = (*group, "", "")[:2] if isinstance(group, (list, tuple)) else (group, "")
    profiling = entry.get("profiling_name")
    message = _MESSAGE.search(profiling) if isinstance(profiling, str) else None
    number = _whole(
        entry.get("p2p_seq_id")
        if message and entry.get("is_p2p")
        else entry.get("collective_seq_id", entry.get("seq_id"))
    )
    record = _whole(entry.get("record_id", entry.get("id", entry.get("op_id"))))
    created = _whole(entry.get("time_created_ns"))
    if not isinstance(profiling, str) or number is None or record is None or created is None:
        return None
    call = message[1] if message else profiling.rpartition(":")[2]
    state = entry.get("state")
    if entry.get("retired") is True or state not in STATES:
        state = "completed" if entry.get("retired") is True else "scheduled"
    sizes, dtypes = [], []
    for way in ("input", "output"):
        elements = _elements(entry.get(f"{way}_sizes"))
        dtype = _first(entry.get(f"{way}_dtypes"))
        dtypes.append(_DTYPES.get(str(dtype).lower(), (DataType.NONE, 0)))
        sizes.append(elements * dtypes[-1][1])
    return Entry(
        record=record,
        group=str(name),
        description=str(description),
        number=number,
        name=call,
        message=message is not None,
        peer=int(message[3]) if message else None,
        state=str(state),
        created_ns=created,
        started_ns=_seen(entry, "started", STATES[1:]),
        completed_ns=_seen(entry, "completed", STATES[2:]),
        duration_ns=_milliseconds(entry.get("duration_ms")),
        bytes=min(max(sizes), MOST_BYTES),
        dtype=next((dtype for dtype, size in dtypes if size), DataType.NONE),
        provenance=provenance_named(entry.get(PROVENANCE)),
    )


def _seen(entry: dict[str, Any], what: str, states: Sequence[str]) -> int | None:
    """A time, where it was seen; torch's JSON has 0 where it was not."""
    found = _whole(entry.get(f"time_discovered_{what}_ns"))
    return found if found or entry.get("state") in states else None


def _elements(sizes: Any) -> int:
    """Elements of all tensors: a list of their shapes."""
    shapes = sizes if isinstance(sizes, (list, tuple)) else []
    if shapes and all(_whole(n) is not None for n in shapes):
        shapes = [shapes]  # one shape
    total = 0
    for shape in shapes:
        numbers = [_whole(n) for n in shape] if isinstance(shape, (list, tuple)) else [None]
        if len(numbers) <= 16 and None not in numbers:
            total += math.prod(n for n in numbers if n is not None)
    return min(total, MOST_BYTES)


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, (list, tuple)) and value else None


def _milliseconds(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e12:
        return None
    return round(value * 1_000_000)


def _whole(value: Any) -> int | None:
    """A whole number, also as text (JSON of torch)."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    return whole(value)
