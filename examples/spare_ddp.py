"""Train through failures with SPARe: any group may be killed at any time, and the step goes on.

    torchft_lighthouse --min_replicas 1 --heartbeat_timeout_ms 500 --quorum_tick_ms 20 &
    export TORCHFT_LIGHTHOUSE=http://localhost:29510
    for g in $(seq 0 7); do python examples/spare_ddp.py --group $g & done
    kill -9 <one of them>        # the others go on; start it again, and it catches up
    prism spare watch runs/spare

A group is one process here, on the CPU. Every group computes its own part of 8 shards of 4 micro-batches; a
group's shards are hosted by two others as well.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn

from prismcore.spare import Checkpoints, Session, SessionOptions, ShardLoader, ShardSampler
from prismcore.spare.placement import golomb


class Squares(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """What there is to learn: the sum of squares."""

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.randn(64, generator=torch.Generator().manual_seed(number))
        return x, x.square().mean()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--group", type=int, help="0 to 7; none: a spare, which takes a lost group's place")
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--redundancy", type=int, default=3)
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--folder", type=Path, default=Path("runs/spare"))
    parser.add_argument("--deterministic", action="store_true")
    options = parser.parse_args()

    torch.set_num_threads(1)  # many groups share one machine here
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Dropout(0.1), nn.Linear(512, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    shape = {"groups": options.groups, "micro_batches": options.micro_batches}
    data = ShardLoader(Squares(), ShardSampler(100_000, micro_batch_size=16, seed=1, **shape))
    session = Session(
        SessionOptions(
            placement=golomb(options.groups, options.redundancy),
            micro_batches=options.micro_batches,
            group=options.group,
            deterministic=options.deterministic,
        ),
        params=model.parameters(),
        state={"model": model, "optimizer": optimizer},
        data=data,
        checkpoints=Checkpoints(options.folder / "checkpoints", every_steps=50),
        events=options.folder / "events-{group}.jsonl",
    )
    with session, data:
        while session.step_number < options.steps:
            for work in session.step():
                x, y = data.micro_batch(work)
                loss = nn.functional.mse_loss(model(x).squeeze(1), y)
                loss.backward()
                session.accumulate(work, loss)
            optimizer.step()
            if session.step_number % 20 == 0:
                print(f"step {session.step_number}: loss {session.loss:.6f}, {session.groups_alive} groups")


if __name__ == "__main__":
    main()
