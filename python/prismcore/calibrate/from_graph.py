"""Samples from a graph that holds measured durations."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from prismcore.calibrate.samples import CollectiveKey, CopyKey, Ints, Samples, by_number, not_measured
from prismcore.errors import TraceError
from prismcore.graph import CopyDirection, DataType, Graph, OpArray, OpFlag, OpKind, Provenance
from prismcore.traces.kineto_device import noted_device
from prismcore.traces.kineto_ops import collective_kind

__all__ = ["samples_of_graph"]

_COLLECTIVES = range(OpKind.ALL_REDUCE, OpKind.SCATTER + 1)


def samples_of_graph(
    graph: Graph, name: str, *, of: Collection[Provenance] = (Provenance.MEASURED,)
) -> Samples:
    """Kernels, copies and collectives whose durations were measured; ``name`` stands in the result. ``of``:
    provenances that count as that (a virtual device under measurement: all).

    A graph's collectives hold no waiting. It does not tell which launches the device waited for, so
    there are no samples of host time.

    Raises TraceError where none was measured.
    """
    if not any(graph.program_statistics(p).device_ns[one] for p in graph.rank_classes for one in of):
        raise TraceError(not_measured(name, exported="exported_from" in graph.metadata))
    samples = Samples(
        source=name, ranks=len(graph.ranks), device=noted_device(graph.metadata.get("traced_device"))
    )
    kernels: dict[int, list[Ints]] = {}
    for ops in _measured(graph, of):
        launched = ops[ops["kind"] == OpKind.KERNEL]
        for number, durations in by_number(launched["ref"].astype(np.int64), launched["duration_ns"]).items():
            kernels.setdefault(number, []).append(durations)
        _add_copies(samples, ops[ops["kind"] == OpKind.COPY])
    for number, parts in kernels.items():
        kernel = graph.kernel(number)
        if collective_kind(kernel.name) is None:
            had = [samples.kernels[kernel]] if kernel in samples.kernels else []
            samples.kernels[kernel] = np.concatenate([*had, *parts])
    _add_collectives(samples, graph, of)
    samples.warnings.append(
        f"{name}: a graph does not tell which launches the device waited for: host figures stay the base's"
    )
    return samples


def _measured(graph: Graph, of: Collection[Provenance]) -> Iterator[OpArray]:
    for rank in graph.ranks.tolist():
        ops = graph.ops(rank)
        yield ops[np.isin(ops["flags"] & 3, list(of))]


def _add_copies(samples: Samples, ops: OpArray) -> None:
    for direction in np.unique(ops["detail"]).tolist():
        mine = ops[ops["detail"] == direction]
        for size, durations in by_number(mine["bytes"], mine["duration_ns"]).items():
            key = CopyKey(direction=CopyDirection(direction), bytes=size)
            had = samples.copies.get(key)
            samples.copies[key] = durations if had is None else np.concatenate([had, durations])


def _add_collectives(samples: Samples, graph: Graph, sources: Collection[Provenance]) -> None:
    """Of each communicator on the lowest of its ranks that the graph holds: all have one duration."""
    held = set(graph.ranks.tolist())
    lists: dict[CollectiveKey, list[Ints]] = {}
    for rank in graph.ranks.tolist():
        ops = graph.ops(rank)
        chosen = np.isin(ops["kind"], _COLLECTIVES) & np.isin(ops["flags"] & 3, list(sources))
        ops = ops[chosen]
        bindings = graph.rank(rank).bindings
        for slot in np.unique(ops["ref"]).tolist():
            communicator = graph.communicator(int(bindings[slot]["communicator"]))
            members = tuple(communicator.members.tolist())
            if len(members) < 2 or rank != min(held.intersection(members)):
                continue
            mine = _fit(samples, ops[ops["ref"] == slot], _unfit(graph, communicator.name, members, held))
            for kind, dtype in sorted({*zip(mine["kind"].tolist(), mine["dtype"].tolist(), strict=True)}):
                of = mine[(mine["kind"] == kind) & (mine["dtype"] == dtype)]
                told = {} if dtype == DataType.NONE else {"dtype": DataType(dtype).name.lower()}
                for size, durations in by_number(of["bytes"], of["duration_ns"]).items():
                    key = CollectiveKey(kind=OpKind(kind), bytes=size, members=members, **told)
                    lists.setdefault(key, []).append(durations)
    samples.collectives = {key: np.concatenate(parts) for key, parts in lists.items()}


def _unfit(graph: Graph, name: str, members: tuple[int, ...], held: set[int]) -> str | None:
    """Why no collective of a communicator is a sample; None: they are."""
    if name.startswith("gloo@"):
        return "in host memory"
    # An import leaves members without a trace out of communicators.
    lacks = (
        len(held) < graph.world_size if "imported_from" in graph.metadata else not held.issuperset(members)
    )
    return "members without a trace" if lacks else None


def _fit(samples: Samples, ops: OpArray, unfit: str | None) -> OpArray:
    """Ops that are samples; the others are counted."""
    reasons = np.full(len(ops), "" if unfit is None else unfit, dtype=object)
    if unfit is None:
        grouped = (ops["flags"] & OpFlag.GROUP_CONTINUES) != 0
        grouped[1:] |= grouped[:-1].copy()
        reasons[grouped] = "several in one launch"
        reasons[ops["bytes"] <= 0] = "size not told"
    samples.leave_out(reasons[reasons != ""].tolist())
    fit: OpArray = ops[reasons == ""]
    return fit
