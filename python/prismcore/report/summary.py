"""What a graph holds, in the words of ``prism info``."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prismcore.graph import Graph, OpKind, Provenance, RankOrigin
from prismcore.report.launches import launches

__all__ = ["GraphSummary", "RankSummary", "ops_and_provenance", "summarize", "summarize_rank"]

_ORDER = (Provenance.MEASURED, Provenance.TABLE, Provenance.MODEL, Provenance.UNKNOWN)


@dataclass(kw_only=True, slots=True, frozen=True)
class GraphSummary:
    """The keys of ``prism info --json``."""

    world_size: int
    classes: int
    ranks_run: int  #: ranks that ran, the checked ones among them
    ranks_checked: int
    ranks_inferred: int
    communicators: int
    ops: int  #: of all ranks together
    blocks: int  #: stored: each content once
    iterations: int
    file_bytes: int
    device: str | None
    command: Sequence[str] | None  #: that was collected; None where there was none
    rules: Mapping[str, int] | None  #: calls that each rule for what ghosts send had; None: no such rules
    provenance: Mapping[str, float]  #: shares of device time over all ranks; all 0 where there is none
    untimed_launches: int  #: kernels, copies and sets without a duration: they count as 0
    digest: str
    communication_digest: str
    spread: Any  #: largest relative differences seen inside a class; None where nothing looked


@dataclass(kw_only=True, slots=True, frozen=True)
class RankSummary:
    """One rank of ``prism info --ranks LIST --json``; its key ``class`` is ``rank_class`` here."""

    rank: int
    rank_class: int
    inferred: bool
    ops: int
    collectives: int  #: communication ops that are neither send nor recv
    bytes_sent: int  #: payload of communication ops except recv
    peak_requested_bytes: int | None  #: these four None where a trace said nothing of memory
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    peak_device_bytes: int | None

    def to_json(self) -> dict[str, Any]:
        fields = dataclasses.asdict(self)
        del fields["rank"]
        return {"class": fields.pop("rank_class"), **fields}


def summarize(graph: Graph) -> GraphSummary:
    """Counts, shares and digests of a graph. Raises GraphFormatError where its metadata is damaged."""
    ranks = [graph.rank(int(r)) for r in graph.ranks]
    ran = Counter(r.origin for r in ranks)
    classes = Counter(r.rank_class for r in ranks)
    ops, provenance = ops_and_provenance(graph)
    metadata = graph.metadata
    device, command, rules = (metadata.get(key) for key in ("device", "command", "rules"))
    traced = metadata.get("traced_device")
    if device is None and isinstance(traced, dict):
        device = traced.get("name")
    return GraphSummary(
        world_size=graph.world_size,
        classes=len(classes),
        ranks_run=ran[RankOrigin.RAN] + ran[RankOrigin.CHECKED],
        ranks_checked=ran[RankOrigin.CHECKED],
        ranks_inferred=ran[RankOrigin.INFERRED],
        communicators=graph.num_communicators,
        ops=ops,
        blocks=graph.num_blocks,
        iterations=graph.iterations,
        file_bytes=graph.file_bytes,
        device=device if isinstance(device, str) else None,
        command=[str(word) for word in command] if isinstance(command, list) else None,
        rules=dict(rules) if isinstance(rules, dict) and rules else None,
        provenance=provenance,
        untimed_launches=launches(graph).untimed,
        digest=graph.digest(),
        communication_digest=graph.communication_digest(),
        spread=metadata.get("spread"),
    )


def ops_and_provenance(graph: Graph) -> tuple[int, dict[str, float]]:
    """Ops of all ranks together, and shares of their device time by where durations come from."""
    ops = 0
    device_ns = dict.fromkeys(Provenance, 0)
    for rank_class, count in Counter(graph.rank(int(r)).rank_class for r in graph.ranks).items():
        statistics = graph.program_statistics(rank_class)
        ops += count * statistics.ops
        for source, ns in statistics.device_ns.items():
            device_ns[source] += count * ns
    whole = sum(device_ns.values())
    return ops, {s.name.lower(): device_ns[s] / whole if whole else 0.0 for s in _ORDER}


def summarize_rank(graph: Graph, rank: int) -> RankSummary:
    """One rank. Raises GraphError if the graph does not hold it."""
    view = graph.rank(rank)
    statistics = graph.program_statistics(view.program)
    talk = statistics.communication
    peaks = [getattr(view.peaks, f"{of}_bytes") for of in ("requested", "allocated", "reserved", "device")]
    if "imported_from" in graph.metadata and not any(peaks):
        peaks = [None] * len(peaks)
    return RankSummary(
        rank=rank,
        rank_class=view.rank_class,
        inferred=view.origin == RankOrigin.INFERRED,
        ops=statistics.ops,
        collectives=sum(n for kind, n in talk.items() if kind not in (OpKind.SEND, OpKind.RECV)),
        bytes_sent=statistics.bytes_sent,
        peak_requested_bytes=peaks[0],
        peak_allocated_bytes=peaks[1],
        peak_reserved_bytes=peaks[2],
        peak_device_bytes=peaks[3],
    )
