"""Messages with a rank that does not exist."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_launcher import failure, launcher

PROGRAM = """
import os, sys
import torch, torch.distributed as dist
backend, call = sys.argv[1:]
dist.init_process_group(backend)
torch.cuda.set_device(0)
x = torch.ones(4, device="cuda" if backend == "nccl" else "cpu")
getattr(dist, call)(x, 99)
"""


@pytest.mark.torch
def test_they_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    for backend, what in (("nccl", "rank 99"), ("gloo", "rank 99 of a group of the host")):
        for call in ("send", "recv"):
            with launcher(tmp_path, command=["train.py", backend, call]) as ranks:
                ranks.start(0)
                told = str(failure(ranks.next_end()))
            expected = f"rank 0: a send or receive is with {what} at train.py:8 <module>, expected one of "
            assert told.startswith(expected), (backend, call)
            assert told.endswith("0 to 15")
