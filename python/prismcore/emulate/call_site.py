"""Where a rank was when it left its recorded program."""

from __future__ import annotations

from prismcore.graph import Graph, OpKind

__all__ = ["next_call_site"]


def next_call_site(graph: Graph, rank: int, op: int) -> str:
    """Call site of the first communication of `rank` from its op number `op` on, queries left out; empty
    where there is none or it is not known."""
    program = graph.rank(rank).program
    begin = 0
    for block, site in zip(
        graph.program_blocks(program).tolist(), graph.program_call_sites(program), strict=False
    ):
        kinds = graph.block(block)["kind"]
        begin += int((kinds != OpKind.QUERY).sum())
        if begin > op and OpKind(int(kinds[-1])).is_communication:
            return site
    return ""
