"""Reads MLCommons Chakra execution traces, one file a rank: protobuf or JSON.

Schema: mlcommons/chakra, ``schema/protobuf/et_def.proto`` (0.0.4 and later): a ``GlobalMetadata``, then
``Node`` records, each behind its length. JSON as the project's own tools write it (one document a message,
a list of them, or ``workload_graph``); 64-bit numbers may be texts there, enums names.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prismcore.errors import TraceError
from prismcore.rank_list import MAX_RANK
from prismcore.traces import wire
from prismcore.traces.chakra_json import documents_of
from prismcore.traces.chakra_node import Attributes, ChakraNode
from prismcore.traces.chakra_protobuf import messages_of
from prismcore.traces.json_files import read_limited
from prismcore.traces.plain_values import distinct_ranks, whole
from prismcore.traces.trace_files import TraceFile, read_trace_files
from prismcore.traces.trace_formats import OtherFormatError

__all__ = ["GROUPS_FILE", "ChakraTrace", "read_chakra_set"]

#: Beside traces: who is in their process groups.
GROUPS_FILE = "comm_groups.json"

#: As in ``et_1.1.0-chakra.0.0.4.json``.
_VERSION = re.compile(r"\d+(?:\.\d+){2,}")


@dataclass(kw_only=True, slots=True)
class ChakraTrace:
    """The trace of one rank."""

    path: str
    rank: int
    version: str
    metadata: Attributes
    nodes: list[ChakraNode]  #: in the order of the file
    groups: dict[str, tuple[int, ...]]  #: members of process groups, by name, from ``comm_groups.json``
    warnings: list[str] = field(default_factory=list)


def read_chakra_set(paths: Sequence[Path]) -> list[ChakraTrace]:
    """The traces of a job, by rank, which their metadata tell, else their names (``trace.3.et``), else, of
    one alone, it is 0. A ``comm_groups.json`` beside them tells members of groups. A folder or a tar archive
    stands for all traces among the ``*.et`` and ``*.json`` in it, gzip or not; others there are told in a
    warning.

    Raises TraceError where one cannot be read, holds no nodes, or two are of one rank.
    """
    groups: dict[str, dict[str, tuple[int, ...]]] = {}  # by folder, of those in archives
    unread: list[str] = []

    def read(file: TraceFile) -> tuple[ChakraTrace, bool] | None:
        if file.name.endswith(("/" + GROUPS_FILE, ": " + GROUPS_FILE)) or file.name == GROUPS_FILE:
            if file.inside == "archive":  # else each trace finds it
                groups[_folder(file.name)] = _groups(file.path, unread)
            return None
        return _read(file)

    found, warnings = read_trace_files([Path(path) for path in paths], "chakra", read)
    if not found:
        raise TraceError("no traces given, expected one file a rank, as trace.0.et")
    traces: dict[int, ChakraTrace] = {}
    for trace, named in found:
        if not named and len(found) > 1:
            raise _unnamed(trace.path)
        if trace.rank in traces:
            raise TraceError(
                f"{trace.path}: rank {trace.rank} found, which {traces[trace.rank].path} is as well"
            )
        trace.groups = trace.groups or groups.get(_folder(trace.path), {})
        traces[trace.rank] = trace
    first = traces[min(traces)]
    first.warnings += warnings + unread
    return [traces[rank] for rank in sorted(traces)]


def _folder(name: str) -> str:
    """Where a file lies, also one of an archive."""
    return name[: max(name.rfind("/"), name.rfind(": ")) + 1]


def _unnamed(file: str) -> TraceError:
    return TraceError(f"{file}: its rank is not told by its name; expected one as trace.3.et")


def _read(source: TraceFile) -> tuple[ChakraTrace, bool]:
    """The trace, and whether its rank is told."""
    file = source.name
    try:
        with source.path.open("rb") as raw:
            data = read_limited(raw, file)
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        found = documents_of(data)
        metadata, nodes = messages_of(data) if found is None else found
    except wire.WireError as error:
        raise TraceError(f"{file}: damaged Chakra trace: {error}") from error
    except TraceError as error:
        raise TraceError(f"{file}: {error}") from error
    if not nodes and not metadata.get("version"):
        raise OtherFormatError(f"{file}: no nodes found, expected a Chakra execution trace")
    warnings: list[str] = []
    rank = whole(metadata.get("rank"))
    told = rank is not None
    if rank is None:
        name = _VERSION.sub("", Path(file).name)
        named = re.findall(r"(?:^|[._-]|rank|npu)(\d{1,8})(?=[._-]|$)", name)
        rank, told = (int(named[-1]), True) if named else (0, False)
        if not told:
            warnings.append(f"{file}: its rank is not told, and taken as 0")
    if rank > MAX_RANK:
        raise TraceError(f"{file}: rank {rank:,} found, expected 0 to {MAX_RANK:,}")
    trace = ChakraTrace(
        path=file,
        rank=rank,
        version=str(metadata.get("version", ""))[:20],
        metadata=metadata,
        nodes=nodes,
        groups=_groups(source.path.parent / GROUPS_FILE, warnings),
        warnings=warnings,
    )
    return trace, told


def _groups(path: Path, warnings: list[str]) -> dict[str, tuple[int, ...]]:
    try:
        told = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        warnings.append(f"{path}: cannot be read, so that members of groups are not told: {error}")
        return {}
    found = {str(k): distinct_ranks(v) for k, v in told.items()} if isinstance(told, dict) else {}
    return {name: of for name, of in found.items() if of is not None}
