"""Lets megatron-core 0.16.1 run on the CPU with gloo: it asks for CUDA by name in many places."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["use_cpu"]

_CPU = torch.device("cpu")
_TYPES = {
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "ByteTensor": torch.uint8,
}
_NAMES = {dtype: f"torch.cuda.{name}" for name, dtype in _TYPES.items()}


class _CudaIsCpu(TorchFunctionMode):
    """``device="cuda"`` and ``.to("cuda")`` mean the CPU."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = {name: _cpu(value) for name, value in (kwargs or {}).items()}
        if function is torch.Tensor.to:
            args = tuple(_cpu(value) for value in args)
        return function(*args, **kwargs)


def _cpu(value: Any) -> Any:
    is_cuda = (isinstance(value, str) and value.startswith("cuda")) or (
        isinstance(value, torch.device) and value.type == "cuda"
    )
    return _CPU if is_cuda else value


class _Stream:
    """Does nothing, in order."""

    def wait_stream(self, stream: Any) -> None: ...
    def wait_event(self, event: Any) -> None: ...
    def synchronize(self) -> None: ...


def use_cpu() -> None:
    """For this process, before megatron is used."""
    cuda: Any = torch.cuda
    stream = _Stream()
    nothing = {"set_device", "synchronize", "empty_cache", "manual_seed_all"}
    for name in nothing:
        setattr(cuda, name, lambda *_, **__: None)
    cuda.current_device = lambda: _CPU
    cuda.current_stream = cuda.default_stream = lambda *_: stream
    cuda.Stream = lambda *_, **__: stream
    cuda.stream = lambda *_: contextlib.nullcontext()
    cuda.memory_stats = lambda *_: {}
    cuda.manual_seed = torch.manual_seed
    cuda.get_rng_state = lambda *_, **__: torch.get_rng_state()
    cuda.set_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    for name, dtype in _TYPES.items():
        setattr(cuda, name, lambda values, dtype=dtype: torch.tensor(values, dtype=dtype))
    torch.Tensor.cuda = lambda self, *_, **__: self  # type: ignore[method-assign]
    torch.nn.Module.cuda = lambda self, *_, **__: self  # type: ignore[method-assign]

    name_of = torch.Tensor.type

    def type_of(self: torch.Tensor, *args: Any, **options: Any) -> Any:
        return name_of(self, *args, **options) if args or options else _NAMES[self.dtype]

    torch.Tensor.type = type_of  # type: ignore[method-assign,assignment]
    _CudaIsCpu().__enter__()

    from megatron.core.tensor_parallel import random

    logging.getLogger(random.__name__).setLevel(logging.ERROR)  # it warns that one generator is both
    random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
    random._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
