"""Call sites out of torch's flight recorder, and what they cost."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_launcher import failure, launcher

from prismcore.graph import Graph

PROGRAM = """
import os, sys
import torch, torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(0)
dist.all_reduce(torch.ones(4, device="cuda"))
torch.cuda.synchronize()
if len(sys.argv) > 1:
    import torch._inductor

leave = os._exit

def tell(status):
    there = vars(torch).get("_inductor")
    print("there", there is not None, there is sys.modules.get("torch._inductor"), flush=True)
    leave(status)

os._exit = tell
"""


@pytest.mark.torch
def test_they_do_not_import_torchs_compiler(tmp_path: Path) -> None:
    """That alone would take a rank more than a second of processor time."""
    (tmp_path / "train.py").write_text(PROGRAM)
    with launcher(tmp_path, command=["train.py"]) as ranks:
        ranks.start(0)
        end = ranks.next_end()
    assert failure(end) is None, end.output
    assert end.last_lines()[-1] == "there False True"
    graph = Graph.from_bytes(end.graph)
    assert "train.py:7 <module>" in graph.program_call_sites(graph.rank(0).program)


@pytest.mark.torch
def test_a_program_that_imports_it_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    with launcher(tmp_path, command=["train.py", "compiles"]) as ranks:
        ranks.start(0)
        end = ranks.next_end()
    assert failure(end) is None, end.output
    assert end.last_lines()[-1] == "there True True"
    graph = Graph.from_bytes(end.graph)
    assert "train.py:7 <module>" in graph.program_call_sites(graph.rank(0).program)
