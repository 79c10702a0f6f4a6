"""A hand-written pipeline of four stages with data parallelism beside it: forward for all
micro-batches, then backward, activations and their gradients sent from stage to stage."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

STAGES, MICRO_BATCHES, SHAPE = 4, 6, (16, 1024)


def exchange(kind, tensor: torch.Tensor, peer: int, group: dist.ProcessGroup) -> torch.Tensor:
    for work in dist.batch_isend_irecv([dist.P2POp(kind, tensor, group=group, group_peer=peer)]):
        work.wait()
    return tensor


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (dist.get_world_size() // STAGES, STAGES), mesh_dim_names=("dp", "pp"))
    stage, line, copies = mesh["pp"].get_local_rank(), mesh.get_group("pp"), mesh.get_group("dp")
    first, last = stage == 0, stage == STAGES - 1
    module = nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(3))).cuda()
    optimizer = torch.optim.Adam(module.parameters())
    for _ in range(3):
        kept = []
        for _ in range(MICRO_BATCHES):
            x = torch.empty(SHAPE, device="cuda")
            x = torch.randn(SHAPE, device="cuda") if first else exchange(dist.irecv, x, stage - 1, line)
            x.requires_grad_(not first)
            y = module(x)
            if not last:
                exchange(dist.isend, y.detach(), stage + 1, line)
            kept.append((x, y))
        for x, y in reversed(kept):
            if last:
                y.square().mean().backward()
            else:
                y.backward(exchange(dist.irecv, torch.empty(SHAPE, device="cuda"), stage + 1, line))
            if not first:
                exchange(dist.isend, x.grad, stage - 1, line)
        works = [
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=copies, async_op=True)
            for p in module.parameters()
        ]
        for work in works:
            work.wait()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
