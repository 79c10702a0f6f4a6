"""Ranks that cannot meet because each was told something else by ranks that did not run beside it."""

from __future__ import annotations

from prismcore.errors import MismatchError
from prismcore.graph import DataType, Graph, OpKind

__all__ = ["ghost_hint"]

_COUNTS = {DataType.INT32, DataType.INT64, DataType.UINT32, DataType.UINT64}


def ghost_hint(graph: Graph, error: MismatchError) -> str:
    """What may be behind a mismatch in a graph of ``prism collect``, and the cure; empty for other graphs."""
    metadata = graph.metadata
    if "ranks_run" not in metadata:
        return ""
    seen = _last_counts(graph, error.rank, error.op)
    told = f", such as {seen}" if seen else ""
    if rules := metadata.get("rules"):
        names = ", ".join(name.partition(" ")[2] for name in rules)
        return (
            f"; ranks were collected one by one, with rules for what the others send ({names}): where values "
            f"that steer the program came from a rule{told}, it must give ranks what their peers have sent"
        )
    return (
        "; ranks were collected one by one, and what they received from the others followed the uniform "
        f"contract: where such values steer the program{told}, give rules to prism collect (--rules FILE, "
        "with --ranks all; docs/guide-experts.md)"
    )


def _last_counts(graph: Graph, rank: int, op: int) -> str:
    """The last exchange of whole numbers of `rank` before its op number `op`; empty: none."""
    if not graph.has_rank(rank):
        return ""
    program = graph.rank(rank).program
    found, begin = "", 0
    for block, site in zip(
        graph.program_blocks(program).tolist(), graph.program_call_sites(program), strict=False
    ):
        ops = graph.block(block)
        last = ops[-1]
        kind = OpKind(int(last["kind"]))
        begin += len(ops)
        if begin > op:
            break
        if kind.is_communication and kind != OpKind.SEND and int(last["dtype"]) in _COUNTS:
            name = DataType(int(last["dtype"])).name.lower()
            where = f" at {site}" if site else ""
            size = f"{int(last['bytes']):,} bytes"
            found = f"those of {kind.name.lower()} {name} of {size}{where} (rank {rank} op {begin - 1})"
    return found
