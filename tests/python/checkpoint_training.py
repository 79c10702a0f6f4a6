"""A training that is hard to restore, and its state to the last bit."""

import random

import numpy as np
import torch

from prismcore.spare.runtime.checkpoints import Checkpoints
from prismcore.spare.runtime.random_states import RandomStates


def bits(value):
    """Equal exactly where the values are the same to the last bit, and of the same types."""
    if isinstance(value, torch.Tensor):
        flat = value.detach().contiguous().reshape(-1).view(torch.uint8) if value.numel() else []
        return ("tensor", str(value.dtype), tuple(value.shape), bytes(flat))
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, dict):
        return (type(value), [(k, bits(v)) for k, v in value.items()])
    if isinstance(value, (list, tuple)):
        return (type(value), [bits(v) for v in value])
    return (type(value), repr(value))


class Training:
    """A run with all that is hard to restore: dropout, momentum, a schedule, data order, plain values."""

    def __init__(self, seed):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(12, 40), torch.nn.BatchNorm1d(40), torch.nn.Dropout(0.3), torch.nn.Linear(40, 3)
        )
        self.optimizer = torch.optim.AdamW(
            [{"params": self.model[0].parameters(), "lr": 0.1}, {"params": self.model[3].parameters()}]
        )
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 10)
        self.progress = {"seen": [], "best": None}

    def state(self):
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "random": RandomStates(),
            "progress": self.progress,
        }

    def step(self):
        inputs = torch.randn(6, 12) * random.random() + float(np.random.rand())
        loss = self.model(inputs).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.progress["seen"].append(loss.item())
        self.progress["best"] = min(self.progress["seen"])

    def bits(self):
        held = self.state().items()
        return {k: bits(v.state_dict() if hasattr(v, "state_dict") else v) for k, v in held}


def saved(folder, step=5, **state):
    with Checkpoints(folder) as checkpoints:
        checkpoints.save(step, state)
