"""Objects that one rank gives to others: ``broadcast_object_list``, ``scatter_object_list``,
``send_object_list``.

What such an object is only the rank that gives it knows, and a program that gets another one takes
another way or fails. So they are not answered by rule: the rank that gives them runs first, what it gives
is kept, and whoever gets it later, in a run of its own, is answered with that. (In an emulation, where
it runs at the same time, it hands it over.) The tensors they travel in
are sent and received by torch's own functions, so the record holds what it would hold; on the device,
where kernels compute nothing, the receiver follows the few numbers that torch computes from them beside
it, on the host.
"""

from __future__ import annotations

import inspect
import pickle
import zlib
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed
import torch.distributed.distributed_c10d as c10d
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from prismcore.launch import company
from prismcore.launch.need import ObjectNeed

__all__ = ["ObjectExchange", "install", "use"]

Tensor = Any  # torch's stubs are not checked

_exchange: ObjectExchange | None = None


def use(exchange: ObjectExchange) -> None:
    """From now on the functions of this process exchange objects by it."""
    global _exchange  # noqa: PLW0603
    _exchange = exchange


def install() -> None:
    """Puts itself in front of torch's functions; before modules that take them by value are imported."""
    for name in ("broadcast_object_list", "scatter_object_list", "send_object_list", "recv_object_list"):
        _replace(name, _exchanging)
    for name in ("broadcast", "scatter", "send", "recv", "batch_isend_irecv"):
        # Only as the functions above call them.
        setattr(c10d, name, _filling(getattr(c10d, name)))
    _replace("gather_object", _gathering)
    c10d.gather = _gathered(c10d.gather)
    c10d._object_to_tensor = _capturing(c10d._object_to_tensor)


def _replace(name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    wrapped = wrap(getattr(c10d, name))
    setattr(c10d, name, wrapped)
    setattr(torch.distributed, name, wrapped)


def _exchanging(original: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(original)

    def exchanging(*args: Any, **kwargs: Any) -> Any:
        if _exchange is None:
            return original(*args, **kwargs)
        bound = parameters.bind(*args, **kwargs)
        bound.apply_defaults()
        return _exchange.exchange(original.__name__, bound.arguments, lambda: original(*args, **kwargs))

    exchanging.__name__ = original.__name__
    exchanging.__doc__ = original.__doc__
    return exchanging


def _filling(original: Callable[..., Any]) -> Callable[..., Any]:
    def filling(first: Any, *args: Any, **kwargs: Any) -> Any:
        if _exchange is not None:
            _exchange.hand_over()
        result = original(first, *args, **kwargs)
        if _exchange is not None and _exchange.answers:
            for tensor in [op.tensor for op in first] if isinstance(first, list) else [first]:
                _exchange.fill(tensor)
        return result

    return filling


def _gathering(original: Callable[..., Any]) -> Callable[..., Any]:
    def gathering(*args: Any, **kwargs: Any) -> Any:
        if _exchange is None:
            return original(*args, **kwargs)
        return _exchange.gather_own(lambda: original(*args, **kwargs))

    gathering.__name__ = original.__name__
    gathering.__doc__ = original.__doc__
    return gathering


def _gathered(original: Callable[..., Any]) -> Callable[..., Any]:
    def gathered(tensor: Tensor, gather_list: list[Tensor] | None = None, *args: Any, **kwargs: Any) -> Any:
        result = original(tensor, gather_list, *args, **kwargs)
        if _exchange is not None and gather_list is not None:
            group = kwargs.get("group") or c10d._get_default_group()
            if not all(company.runs(rank) for rank in torch.distributed.get_process_group_ranks(group)):
                _exchange.fill_pair(gather_list)
        return result

    return gathered


def _capturing(original: Callable[..., Any]) -> Callable[..., Any]:
    def capturing(obj: object, device: Any, *args: Any, **kwargs: Any) -> Any:
        if _exchange is None or _exchange.given is None:
            return original(obj, device, *args, **kwargs)
        content, size = original(obj, "cpu", *args, **kwargs)
        _exchange.given.append(content.numpy().tobytes())
        content_there, size_there = content.to(device), size.to(device)
        _exchange.know(size_there, size)
        return content_there, size_there

    return capturing


class ObjectExchange:
    """Of one rank. ``known``: what other ranks gave, by key. ``missing`` is called where that lacks what
    this rank needs, and does not return."""

    def __init__(
        self,
        *,
        known: Mapping[str, list[bytes]],
        site: Callable[[], str],
        missing: Callable[[ObjectNeed], Any],
    ) -> None:
        self._known = known
        self._site = site
        self._missing = missing
        self._numbers: Counter[str] = Counter()
        self._mirrors: _Mirrors | None = None
        self._key = ""
        self._receivers: list[int] = []
        """Who is to get what is given now, under that key."""
        self.published: dict[str, list[bytes]] = {}
        """What this rank gave to others: the objects of a call, pickled."""
        self.given: list[bytes] | None = None
        self.answers: deque[bytes] = deque()

    def exchange(self, function: str, arguments: Mapping[str, Any], call: Callable[[], Any]) -> Any:
        """One call of ``function``, which ``call`` makes."""
        group = c10d._group_or_default_group(arguments["group"])
        if c10d._rank_not_in_group(group):
            return call()
        own = group.rank()
        pair = function in ("send_object_list", "recv_object_list")
        if function == "send_object_list":
            root = own
            other = c10d._canonicalize_group_rank(group, arguments["dst"], arguments["group_dst"])
        else:
            root, other = self._root(group, arguments, default=None if pair else 0), own
        if root is None:  # a receive from whoever comes
            return call()
        members = torch.distributed.get_process_group_ranks(group)
        place = f"{group.group_name}/{zlib.crc32(array('Q', members).tobytes()):08x}"
        if pair:
            place += f"/{root}>{other}"
        number = self._numbers[place]
        self._numbers[place] += 1
        key = f"{place}/{number}"
        if own == root:
            receivers = [members[other]] if pair else members
            self._receivers = [rank for rank in receivers if rank != members[own] and company.runs(rank)]
            return self._give(key, call)
        if company.runs(members[root]):
            objects: list[bytes] = pickle.loads(company.take(members[root], key))
        elif key in self._known:
            objects = self._known[key]
        else:
            self._missing(
                ObjectNeed(
                    key=key,
                    root=members[root],
                    function=function,
                    number=number,
                    group=f"{group.group_desc}:{group.group_name}",
                    size=len(members),
                    site=self._site(),
                )
            )
        if function == "scatter_object_list":
            longest = max(map(len, objects))
            answers = [_number(longest), objects[own].ljust(longest, b"\0"), _number(len(objects[own]))]
        else:
            answers = [b"".join(_number(len(content)) for content in objects), b"".join(objects)]
        with self._answering(answers):
            return call()

    def hand_over(self) -> None:
        """To ranks that run beside this one, before it communicates: they cannot begin without."""
        if self._receivers and self.given is not None:
            company.leave(self._receivers, self._key, pickle.dumps(self.given))
            self._receivers = []

    @staticmethod
    def _root(group: Any, arguments: Mapping[str, Any], *, default: int | None) -> int | None:
        source, position = arguments["src"], arguments["group_src"]
        if source is None and position is None:
            if default is None:
                return None
            source = default
        root: int = c10d._canonicalize_group_rank(group, source, position, return_global=False)
        return root

    def _give(self, key: str, call: Callable[[], Any]) -> Any:
        self.given = []
        self._key = key
        self._mirrors = _Mirrors()  # torch looks for the largest of what is given on the device
        try:
            with self._mirrors:
                result = call()
            self.published[key] = self.given
            return result
        finally:
            self.given = self._mirrors = None

    @contextmanager
    def _answering(self, answers: list[bytes]) -> Iterator[None]:
        self.answers.extend(answers)
        self._mirrors = _Mirrors()
        try:
            with self._mirrors:
                yield
        finally:
            self._mirrors = None
            self.answers.clear()

    def know(self, tensor: Tensor, values: Tensor) -> None:
        if self._mirrors is not None and _on_device(tensor):
            self._mirrors.put(tensor, values)

    def gather_own(self, call: Callable[[], Any]) -> Any:
        """One call of ``gather_object``. The door sees a gather of two as a plain receive, which reads as
        zero; here it is known for what it is."""
        self.given = []
        self._mirrors = _Mirrors()
        try:
            with self._mirrors:
                return call()
        finally:
            self.given = self._mirrors = None

    def fill_pair(self, parts: list[Tensor]) -> None:
        if self._mirrors is None or not self.given or len(parts) != 2 or not _on_device(parts[0]):
            return
        own = torch.frombuffer(bytearray(self.given[0].ljust(parts[0].numel(), b"\0")), dtype=torch.uint8)
        self._mirrors.put(parts[0], own.repeat(2))

    def fill(self, tensor: Tensor) -> None:
        """What has just been received is the next answer."""
        content = self.answers.popleft()
        if len(content) != tensor.numel() * tensor.element_size():
            raise RuntimeError(
                f"an object list is received into {tensor.numel() * tensor.element_size()} bytes, but "
                f"{len(content)} were given; expected lists of equal length on every rank"
            )
        values = torch.frombuffer(bytearray(content), dtype=tensor.dtype) if content else torch.empty(0)
        if tensor.device.type == "cpu":
            tensor.view(-1).copy_(values)
        elif self._mirrors is not None:
            self._mirrors.put(tensor, values)


def _number(value: int) -> bytes:
    return value.to_bytes(8, "little")


class _Mirrors(TorchDispatchMode):  # type: ignore[misc]
    """Follows on the host what is computed on the device from tensors whose content is known, and
    answers reads of it. The device's own ops go on as ever."""

    def __init__(self) -> None:
        super().__init__()
        self._of: dict[int, Tensor] = {}
        """By address of a storage on the device: its content, one-dimensional."""

    def put(self, tensor: Tensor, values: Tensor) -> None:
        if tensor.numel():
            self._of[tensor.untyped_storage().data_ptr()] = values.reshape(-1)

    def of(self, tensor: Tensor) -> Tensor | None:
        content = self._of.get(tensor.untyped_storage().data_ptr())
        if content is None or content.dtype != tensor.dtype:
            return None
        return content.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.namespace != "aten" or not self._of:
            return result
        tensors = [x for x in tree_flatten((args, kwargs))[0] if _on_device(x)]
        mirrored = {id(tensor): self.of(tensor) for tensor in tensors}
        if not tensors or any(mirror is None for mirror in mirrored.values()):
            return result
        if func is torch.ops.aten._local_scalar_dense.default:
            return self.of(args[0]).item()  # type: ignore[union-attr]
        if func is torch.ops.aten._to_copy.default and not _on_device(result):
            return result.copy_(mirrored[id(args[0])])
        if func.is_view:
            return result
        there = tree_map(lambda x: mirrored[id(x)] if _on_device(x) else x, (args, kwargs or {}))
        for device, host in zip(
            tree_flatten(result)[0], tree_flatten(func(*there[0], **there[1]))[0], strict=True
        ):
            if _on_device(device):
                self.put(device, host.contiguous())
        return result


def _on_device(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "cuda"
