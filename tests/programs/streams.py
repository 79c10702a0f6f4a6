"""A prefetching copy stream, record_stream, un-awaited reductions, and a pool of side streams."""

import os

import torch
import torch.distributed as dist
from torch import nn


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    model = nn.Sequential(nn.Linear(2048, 2048), nn.Tanh(), nn.Linear(2048, 2048)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loading, helping = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)

    def prefetch() -> torch.Tensor:
        with torch.cuda.stream(loading):
            return torch.randn(512, 2048).pin_memory().to("cuda", non_blocking=True)

    following = prefetch()
    for _ in range(6):
        torch.cuda.current_stream().wait_stream(loading)
        x = following
        x.record_stream(torch.cuda.current_stream())
        following = prefetch()
        loss = model(x).square().mean()
        loss.backward()
        with torch.cuda.stream(helping):
            helping.wait_stream(torch.cuda.current_stream())
            scratch = torch.cat([p.grad.flatten() for p in model.parameters()])
            scratch.record_stream(torch.cuda.current_stream())
            norm = scratch.norm()
        torch.cuda.current_stream().wait_stream(helping)
        del scratch
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad.clone(), async_op=True)  # nobody waits for it
        work = dist.all_reduce(norm, async_op=True)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        work.wait()
        optimizer.step()
        optimizer.zero_grad()
        if torch.cuda.current_stream().query():
            torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
