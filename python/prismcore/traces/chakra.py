"""Reads MLCommons Chakra execution traces, one file a rank: protobuf or JSON.

Schema: mlcommons/chakra, ``schema/protobuf/et_def.proto`` (0.0.4 and later): a ``GlobalMetadata``, then
``Node`` records, each behind its length. JSON as the project's own tools write it (one document a message,
a list of them, or ``workload_graph``); 64-bit numbers may be texts there, enums names.
"""

from __future__ import annotations

import json
import os
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
from prismcore.traces.plain_values import distinct, whole

__all__ = ["GROUPS_FILE", "ChakraTrace", "read_chakra", "read_chakra_set"]

#: Beside traces: who is in their process groups.
GROUPS_FILE = "comm_groups.json"


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
    """The traces of a job, by rank. A ``comm_groups.json`` beside them tells members of groups.

    Raises TraceError where one cannot be read, holds no nodes, or two are of one rank.
    """
    files = [path for path in paths if path.name != GROUPS_FILE]
    if not files:
        raise TraceError("no traces given, expected one file a rank, as trace.0.et")
    traces: dict[int, ChakraTrace] = {}
    for path in files:
        trace = read_chakra(path, alone=len(files) == 1)
        if trace.rank in traces:
            raise TraceError(f"{path}: rank {trace.rank} found, which {traces[trace.rank].path} is as well")
        traces[trace.rank] = trace
    return [traces[rank] for rank in sorted(traces)]


def read_chakra(path: str | os.PathLike[str], *, alone: bool = True) -> ChakraTrace:
    """One trace. Its rank is told by its metadata, else by its name (``trace.3.et``), else, ``alone``, 0.

    Raises TraceError where it cannot be read, is damaged, is no such trace, or its rank is not told.
    """
    file = os.fspath(path)
    try:
        with open(file, "rb") as raw:
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
    if not nodes and not metadata:
        raise TraceError(f"{file}: no nodes found, expected a Chakra execution trace")
    warnings: list[str] = []
    rank = whole(metadata.get("rank"))
    if rank is None:
        named = re.findall(r"(?:^|[._-]|rank|npu)(\d{1,8})(?=[._-]|$)", Path(file).name)
        rank = int(named[-1]) if named else 0
        if not named and not alone:
            raise TraceError(f"{file}: its rank is not told by its name; expected one as trace.3.et")
        if not named:
            warnings.append(f"{file}: its rank is not told, and taken as 0")
    if rank > MAX_RANK:
        raise TraceError(f"{file}: rank {rank:,} found, expected 0 to {MAX_RANK:,}")
    return ChakraTrace(
        path=file,
        rank=rank,
        version=str(metadata.get("version", ""))[:20],
        metadata=metadata,
        nodes=nodes,
        groups=_groups(Path(file).parent / GROUPS_FILE, warnings),
        warnings=warnings,
    )


def _groups(path: Path, warnings: list[str]) -> dict[str, tuple[int, ...]]:
    try:
        told = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        warnings.append(f"{path}: cannot be read, so that members of groups are not told: {error}")
        return {}
    found = {str(k): distinct(v) for k, v in told.items()} if isinstance(told, dict) else {}
    return {name: members for name, members in found.items() if members is not None}
