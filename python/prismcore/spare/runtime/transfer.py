"""The state of a training from a member that has it to one that comes back.

Tensors travel as they are, one after the other; all else is pickled. Both ends are members of one training
and trust each other.
"""

from __future__ import annotations

import io
import logging
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from prismcore.errors import SpareError
from prismcore.spare.runtime.communicator import Communicator

__all__ = ["receive_state", "send_state"]

_TAG = 77
_log = logging.getLogger(__name__)


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.file = file
        self.tensors: list[Tensor] = []

    def persistent_id(self, obj: Any) -> tuple[int, torch.dtype, tuple[int, ...]] | None:
        if type(obj) not in (Tensor, torch.nn.Parameter) or not _is_plain(obj):
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


def send_state(communicator: Communicator, make: Callable[[], Any], ranks: Sequence[int]) -> int:
    """To each of ``ranks``, what ``make()`` gives. Returns how many bytes went.

    A state that cannot be sent is an error for those that want it, not here."""
    if not ranks:
        return 0
    pickler = _Pickler(io.BytesIO())
    try:
        pickler.dump(make())
        tensors = [_bytes(tensor) for tensor in pickler.tensors]
        data, is_whole = pickler.file.getbuffer(), 1
    except Exception as error:  # of state_dict(), of pickle, of torch
        _log.warning("the state of the training cannot be given to those who join", exc_info=True)
        tensors = []
        data, is_whole = memoryview(f"{type(error).__name__}: {error}".encode("utf-8", "replace")), 0
    head = torch.tensor([len(data), is_whole])
    text = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    parts = [part for part in (head, text, *tensors) if part.numel()]

    def send() -> None:
        for rank in ranks:
            for part in parts:
                communicator.process_group.send([part.to(communicator.device)], rank, _TAG).wait()

    communicator.run(send, "sending the state of the training")
    return len(ranks) * sum(int(part.numel()) for part in (text, *tensors))


def receive_state(communicator: Communicator, rank: int) -> Any:
    """What send_state() gave, on the CPU.

    Raises:
        SpareError: the other end has no state that can be sent.
    """

    def take(tensor: Tensor) -> Tensor:
        """Into ``tensor``, which lies on the CPU."""
        there = tensor.to(communicator.device)
        communicator.process_group.recv([there], rank, _TAG).wait()
        return tensor if there is tensor else tensor.copy_(there)

    def receive() -> Any:
        length, is_whole = take(torch.zeros(2, dtype=torch.int64)).tolist()
        data = take(torch.empty(length, dtype=torch.uint8)).numpy().tobytes()
        if not is_whole:
            raise SpareError(
                f"the group that is to give the state of the training cannot ({data.decode()}); expected "
                "state_dict() to give what pickle takes"
            )
        unpickler = _Unpickler(io.BytesIO(data))
        state = unpickler.load()
        for _, tensor in sorted(unpickler.tensors.items()):
            if tensor.numel():
                take(_bytes(tensor))
        return state

    return communicator.run(receive, "receiving the state of the training")


def _is_plain(tensor: Tensor) -> bool:
    """Its elements are what it is. What is not (sparse, quantized, a lazy conjugate, without storage) is
    pickled as torch does it."""
    return (
        tensor.layout is torch.strided
        and tensor.device.type != "meta"
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )


def _bytes(tensor: Tensor) -> Tensor:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8) if flat.numel() else flat.new_empty(0, dtype=torch.uint8)
