"""A small GPT trainer as people write them: autocast, GradScaler, fused AdamW, DDP, a DataLoader with
workers and pinned memory, gradient accumulation, clipping, a cosine schedule, logs and checkpoints."""

import contextlib
import math
import os
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

LAYERS, WIDTH, HEADS, LENGTH, WORDS = 4, 256, 4, 256, 5120
BATCH, ACCUMULATE, STEPS = 4, 2, 4


class Tokens(Dataset):
    def __init__(self, count: int = 1 << 19) -> None:
        self.data = np.random.default_rng(0).integers(0, WORDS, count, dtype=np.uint16)

    def __len__(self) -> int:
        return len(self.data) // LENGTH - 1

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        piece = self.data[index * LENGTH : (index + 1) * LENGTH + 1].astype(np.int64)
        return torch.from_numpy(piece[:-1]), torch.from_numpy(piece[1:])


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = (y.view(b, t, HEADS, c // HEADS).transpose(1, 2) for y in self.qkv(x).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0, is_causal=True)
        return self.drop(self.out(y.transpose(1, 2).contiguous().view(b, t, c)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.drop = nn.Dropout(0.1)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.words.weight = self.head.weight

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        places = torch.arange(tokens.shape[1], dtype=torch.long, device=tokens.device)
        x = self.drop(self.words(tokens) + self.places(places))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return logits, F.cross_entropy(logits.view(-1, WORDS), targets.view(-1), ignore_index=-1)


def learning_rate(step: int) -> float:
    return 6e-4 * (step + 1) / 3 if step < 2 else 6e-4 * 0.5 * (1 + math.cos(math.pi * step / STEPS))


@torch.no_grad()
def evaluate(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor], context) -> float:
    model.eval()
    losses = torch.zeros(2)
    for i in range(2):
        with context:
            losses[i] = model(*batch)[1].item()
    model.train()
    return losses.mean().item()


def main() -> None:
    dist.init_process_group(backend="nccl")
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    device = f"cuda:{local_rank}"
    torch.cuda.set_device(device)
    torch.manual_seed(1337 + rank)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    dtype = "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
    context = torch.amp.autocast(device_type="cuda", dtype=getattr(torch, dtype))
    data = Tokens()
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, BATCH, sampler=sampler, num_workers=2, pin_memory=True, drop_last=True)
    model = GPT().to(device)
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), fused=True)
    scaler = torch.amp.GradScaler("cuda", enabled=True)
    model = DistributedDataParallel(model, device_ids=[local_rank])
    batches = iter(loader)
    for step in range(STEPS):
        started = time.time()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        for micro_step in range(ACCUMULATE):
            x, y = (t.to(device, non_blocking=True) for t in next(batches))
            synchronise = micro_step == ACCUMULATE - 1
            with contextlib.nullcontext() if synchronise else model.no_sync(), context:
                _, loss = model(x, y)
                loss = loss / ACCUMULATE
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        mean = loss.detach()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if rank == 0:
            print(f"iter {step}: loss {mean.item():.4f}, time {(time.time() - started) * 1000:.2f}ms")
            if step == 1:
                print("validation", evaluate(model.module, (x, y), context))
                with tempfile.TemporaryFile() as file:
                    saved = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
                    torch.save(saved, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
