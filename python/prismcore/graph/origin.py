"""What an exported replay says of the graph it is of, so that what comes back through an import is not
taken for a run that was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prismcore.graph.graph import Graph
from prismcore.graph.op import Provenance

__all__ = ["MARK", "PROVENANCE", "export_mark", "from_mark", "provenance_named"]

#: Key beside what another tool's file holds.
MARK = "prismcore"
#: Key of an event or entry: where its duration comes from.
PROVENANCE = "provenance"

_LONGEST = 1000
_BY_NAME = {source.name.lower(): source for source in Provenance}


def export_mark(graph: Graph) -> dict[str, Any]:
    """The value of ``MARK``: ``exported_from`` (what the graph was made of: the format of its import,
    ``collect`` or ``graph``), and of its metadata what a replay and a report look at."""
    metadata = graph.metadata
    made = "collect" if metadata.get("command") else "graph"
    for key in ("imported_from", "times_from", "exported_from"):
        made = metadata.get(key, made)
    mark: dict[str, Any] = {"exported_from": made}
    return mark | {key: metadata[key] for key in ("device", "warmup_iterations") if key in metadata}


def from_mark(mark: Any) -> dict[str, Any]:
    """Metadata of the graph that a marked file becomes; empty without a mark. What cannot be is left out."""
    if not isinstance(mark, Mapping):
        return {}
    found: dict[str, Any] = {"exported_from": _text(mark.get("exported_from")) or "graph"}
    if (device := _text(mark.get("device"))) is not None:
        found["device"] = device
    warm_up = mark.get("warmup_iterations")
    if type(warm_up) is int and 0 <= warm_up < 2**31:
        found["warmup_iterations"] = warm_up
    return found


def provenance_named(name: Any) -> Provenance | None:
    """By the name that exports write; None: no such."""
    return _BY_NAME.get(name) if isinstance(name, str) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.isprintable() and 0 < len(value) <= _LONGEST else None
