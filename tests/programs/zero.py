"""DistributedDataParallel with torch's sharded optimizer and gradient accumulation."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    layers = [nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Dropout(0.1)) for _ in range(8)]
    model = nn.Sequential(*layers, nn.BatchNorm1d(1024), nn.Linear(1024, 10)).cuda()
    model = DistributedDataParallel(
        nn.SyncBatchNorm.convert_sync_batchnorm(model), gradient_as_bucket_view=True, bucket_cap_mb=4
    )
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
    for _ in range(3):
        for micro_batch in range(2):
            with torch.no_grad():
                x = torch.randn(64, 1024, device="cuda")
                y = torch.randint(0, 10, (64,), device="cuda")
            if micro_batch == 0:
                with model.no_sync():
                    nn.functional.cross_entropy(model(x), y).backward()
            else:
                nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
