"""The state of a training from a member that has it to one that comes back.

Tensors travel as they are, one after the other; all else is pickled. Both ends are members of one training
and trust each other.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch
from torch import Tensor

from prismcore.spare.runtime.communicator import Communicator

__all__ = ["receive_state", "send_state"]

_TAG = 77


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.tensors: list[Tensor] = []

    def persistent_id(self, obj: Any) -> tuple[int, torch.dtype, tuple[int, ...]] | None:
        if type(obj) not in (Tensor, torch.nn.Parameter):
            return None
        self.tensors.append(obj)
        return len(self.tensors) - 1, obj.dtype, tuple(obj.shape)


class _Unpickler(pickle.Unpickler):
    """Makes empty tensors, to be filled."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.tensors: dict[int, Tensor] = {}

    def persistent_load(self, pid: tuple[int, torch.dtype, tuple[int, ...]]) -> Tensor:
        number, dtype, shape = pid
        return self.tensors.setdefault(number, torch.empty(shape, dtype=dtype))


def send_state(communicator: Communicator, state: Any, rank: int) -> int:
    """Returns how many bytes went."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(state)
    data = torch.frombuffer(bytearray(file.getbuffer()), dtype=torch.uint8)
    tensors = [_bytes(tensor) for tensor in pickler.tensors]

    def send() -> None:
        group = communicator.process_group
        for part in (torch.tensor([data.numel()]), data, *tensors):
            if part.numel():
                group.send([part.to(communicator.device)], rank, _TAG).wait()

    communicator.run(send, "sending the state of the training")
    return int(data.numel()) + sum(int(tensor.numel()) for tensor in tensors)


def receive_state(communicator: Communicator, rank: int) -> Any:
    """What send_state() gave, on the CPU."""

    def take(tensor: Tensor) -> Tensor:
        """Into ``tensor``, which lies on the CPU."""
        there = tensor.to(communicator.device)
        communicator.process_group.recv([there], rank, _TAG).wait()
        return tensor if there is tensor else tensor.copy_(there)

    def receive() -> Any:
        length = take(torch.zeros(1, dtype=torch.int64))
        data = take(torch.empty(int(length), dtype=torch.uint8))
        unpickler = _Unpickler(io.BytesIO(data.numpy().tobytes()))
        state = unpickler.load()
        for _, tensor in sorted(unpickler.tensors.items()):
            if tensor.numel():
                take(_bytes(tensor))
        return state

    return communicator.run(receive, "receiving the state of the training")


def _bytes(tensor: Tensor) -> Tensor:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8) if flat.numel() else flat.new_empty(0, dtype=torch.uint8)
