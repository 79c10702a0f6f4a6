"""Groups that communicate from host memory (torch's gloo), for a rank whose peers do not run.

Programs make them for barriers, objects and small tensors. Torch lets a backend be a Python class; this
one takes gloo's name, answers by the contract of the NCCL door (every absent member behaves as if it
held this rank's own data; where other members run beside this one, host_bytes.py) and records what it
answers as blocking ops of the group's communicator, on a stream that holds nothing else.
"""

from __future__ import annotations

import ctypes
import threading
import zlib
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed.distributed_c10d as c10d

from prismcore import _core
from prismcore.errors import CollectError
from prismcore.graph.op import DataType, OpKind, Reduction
from prismcore.launch.host_bytes import HostBytes, Receiver, combine

__all__ = ["HOST_GROUP_MARK", "HostGroups"]

HOST_GROUP_MARK: str = _core.HOST_GROUP_MARK

Tensor = Any  # torch's stubs are not checked

_NON_BLOCKING_STREAM = 1
_DTYPES = {
    torch.int8: DataType.INT8,
    torch.uint8: DataType.UINT8,
    torch.bool: DataType.UINT8,
    torch.int32: DataType.INT32,
    torch.int64: DataType.INT64,
    torch.float16: DataType.FLOAT16,
    torch.float32: DataType.FLOAT32,
    torch.float64: DataType.FLOAT64,
    torch.bfloat16: DataType.BFLOAT16,
}


class HostGroups:
    """All gloo groups of a rank. ``site()``: where the program communicates, as text."""

    def __init__(self, world_size: int, site: Callable[[], str]) -> None:
        self._world_size = world_size
        self.site = site
        self._stream = 0
        self.call_sites: list[tuple[int, str]] = []
        """Number of the launch among all of the rank, and its call site."""

    def install(self) -> None:
        """Stands in for gloo in whatever group the program makes from now on."""
        name = c10d.Backend.GLOO.upper()
        c10d.Backend._plugins[name] = c10d.Backend._BackendPlugin(self._create, True)
        c10d.Work.is_completed = _asking_ours(c10d.Work.is_completed)

    def _create(self, options: Any, backend_options: object) -> c10d.C10DBackend:
        ranks = list(options.global_ranks_in_group) or list(range(self._world_size))
        return _GhostGloo(self, options.process_group, str(options.group_id), options.group_rank, ranks)

    def record(self, slot: int, kind: OpKind, tensor: Tensor, **fields: int) -> None:
        """One op; ``fields``: detail, peer, bytes (default: those of the tensor), tag."""
        number = _core.vgpu_communicate_from_host(
            self._own_stream(),
            slot,
            int(kind),
            int(DataType.NONE if tensor is None else _DTYPES.get(tensor.dtype, DataType.UINT8)),
            fields.get("detail", 0),
            fields.get("peer", 0),
            fields.get("bytes", _bytes(tensor)),
            fields.get("tag", 0),
        )
        self.call_sites.append((number, self.site()))

    def _own_stream(self) -> int:
        if not self._stream:
            stream = ctypes.c_void_p()
            create = ctypes.CDLL(None).cudaStreamCreateWithFlags
            if create(ctypes.byref(stream), _NON_BLOCKING_STREAM) != 0 or not stream.value:
                raise RuntimeError("the virtual GPU gave no stream for groups in host memory")
            self._stream = stream.value
        return self._stream


_asking = threading.local()
"""``answered``: the work that was asked for its future last, on this thread."""


def _asking_ours(original: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """What a program holds is an object of torch's around ours, which hands on ``wait`` and ``get_future``
    alone (torch 2.14), and says for ever that it is not complete. Who is asked for its future is ours."""

    def is_completed(work: Any) -> bool:
        if original(work):
            return True
        _asking.answered = None
        _asking.now = True
        try:
            work.get_future()
        except RuntimeError:
            return False  # another backend's, which has none
        finally:
            _asking.now = False
        ours: _Done | None = _asking.answered
        return ours is not None and ours.is_completed()

    return is_completed


class _Done(c10d.Work):  # type: ignore[misc]
    """What is complete when it is returned."""

    def __init__(self, tensors: Sequence[Tensor] = ()) -> None:
        super().__init__()
        self._future: torch.futures.Future[list[Tensor]] = torch.futures.Future()
        self._future.set_result(list(tensors))

    def wait(self, timeout: object = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def get_future(self) -> Any:
        _asking.answered = self
        return self._future


class _Receiving(_Done):
    """A receive: it is recorded when the rank first waits for it, or asks and it has come."""

    def __init__(
        self,
        record: Callable[[], None],
        source: int,
        tensors: Sequence[Tensor],
        has_come: Callable[[], bool],
    ) -> None:
        super().__init__(tensors)
        self._record: Callable[[], None] | None = record
        self._source = source
        self._has_come = has_come

    def wait(self, timeout: object = None) -> bool:
        record, self._record = self._record, None
        if record is not None:
            record()
        return True

    def is_completed(self) -> bool:
        if self._record is not None and not self._has_come():
            return False
        return self.wait()

    def get_future(self) -> Any:
        if not getattr(_asking, "now", False):
            self.wait()  # nobody else would complete it
        return super().get_future()

    def _source_rank(self) -> int:
        return self._source


class _GhostGloo(c10d.C10DBackend):  # type: ignore[misc]
    """Named as torch's Python backends are called (torch 2.14, ``PyBackend.hpp``)."""

    def __init__(self, groups: HostGroups, group: Any, uid: str, position: int, ranks: list[int]) -> None:
        super().__init__(position, len(ranks))
        self._groups = groups
        self._group = group
        self._uid = uid
        self._ranks = ranks
        self._known_slot: int | None = None
        self._known_bytes: HostBytes | None = None

    def _with_others(self, tensor: Tensor) -> HostBytes | None:
        """What other members hold, where some of them run; None: by the contract."""
        if self._known_bytes is None:
            members = zlib.crc32(array("Q", self._ranks).tobytes())
            name = f"{self._group.group_desc}:{self._uid}/{members:08x}"
            self._known_bytes = HostBytes(name, self._ranks, self.rank())
        return self._known_bytes if self._known_bytes.real and tensor.device.type == "cpu" else None

    def getBackendName(self) -> str:  # noqa: N802
        return "gloo"

    def _slot(self) -> int:
        if self._known_slot is None:
            name = f"{self._group.group_desc}:{self._uid}"
            self._known_slot = _core.vgpu_add_host_group(name, self.size(), self.rank())
            _core.vgpu_set_members(self._known_slot, self._ranks)
        return self._known_slot

    def _op(self, kind: OpKind, tensor: Tensor, *, times: int = 1, **fields: int) -> None:
        fields.setdefault("bytes", times * _bytes(tensor))
        self._groups.record(self._slot(), kind, tensor, **fields)

    # To all.

    def barrier(self, options: object = None) -> _Done:
        self._op(OpKind.ALL_REDUCE, None, bytes=0)
        return _Done()

    def monitored_barrier(self, options: object = None, wait_all_ranks: bool = False) -> None:
        self.barrier()

    def allreduce(self, tensors: list[Tensor], options: Any) -> _Done:
        for tensor in tensors:
            self._op(OpKind.ALL_REDUCE, tensor, detail=_reduction(options.reduceOp))
            others = self._with_others(tensor)
            if others is not None:
                tensor.copy_(combine(options.reduceOp, others.all(tensor)))
            else:
                _reduce(tensor, options.reduceOp, self.size())
        return _Done(tensors)

    allreduce_coalesced = allreduce

    def broadcast(self, tensors: list[Tensor], options: Any) -> _Done:
        for tensor in tensors:
            self._op(OpKind.BROADCAST, tensor, peer=options.rootRank)
            others = self._with_others(tensor)
            if others is not None:
                tensor.copy_(others.from_root(tensor, options.rootRank))
        return _Done(tensors)

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], options: object) -> _Done:
        for parts, own in zip(outputs, inputs, strict=True):
            self._op(OpKind.ALL_GATHER, own, times=self.size())
            for part, held in zip(parts, self._held(own), strict=True):
                _copy(part, held)
        return _Done([part for parts in outputs for part in parts])

    def _held(self, own: Tensor) -> list[Tensor]:
        """By all members, by position."""
        others = self._with_others(own)
        return [own] * self.size() if others is None else others.all(own)

    allgather_coalesced = allgather

    def all_gather_single(self, output: Tensor, own: Tensor, options: object) -> _Done:
        self._op(OpKind.ALL_GATHER, own, times=self.size())
        for part, held in zip(output.view(-1).chunk(self.size()), self._held(own.reshape(-1)), strict=True):
            _copy(part, held)
        return _Done([output])

    def all_gather_single_coalesced(
        self, outputs: list[Tensor], owns: list[Tensor], options: object
    ) -> _Done:
        for output, own in zip(outputs, owns, strict=True):
            self.all_gather_single(output, own, options)
        return _Done(outputs)

    # To one.

    def reduce(self, tensors: list[Tensor], options: Any) -> _Done:
        for tensor in tensors:
            detail = _reduction(options.reduceOp)
            self._op(OpKind.REDUCE, tensor, detail=detail, peer=options.rootRank)
            others = self._with_others(tensor)
            if others is not None:
                held = others.to_root(tensor, options.rootRank)
                if held is not None:
                    tensor.copy_(combine(options.reduceOp, held))
            elif options.rootRank == self.rank():
                _reduce(tensor, options.reduceOp, self.size())
        return _Done(tensors)

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], options: Any) -> _Done:
        for i, own in enumerate(inputs):
            self._op(OpKind.GATHER, own, times=self.size(), peer=options.rootRank)
            others = self._with_others(own)
            held = [own] * self.size() if others is None else others.to_root(own, options.rootRank)
            if options.rootRank == self.rank() and held is not None:
                for part, given in zip(outputs[i], held, strict=True):
                    _copy(part, given)
        return _Done([part for parts in outputs for part in parts])

    # From one, or each to each.

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], options: Any) -> _Done:
        for i, output in enumerate(outputs):
            self._op(OpKind.SCATTER, output, times=self.size(), peer=options.rootRank)
            is_root = options.rootRank == self.rank()
            others = self._with_others(output)
            if others is not None:
                given = others.scattered(inputs[i] if is_root else None, options.rootRank, output)
            else:
                given = inputs[i][self.rank()] if is_root else None
            if given is None:
                _zero(output)
            else:
                _copy(output, given)
        return _Done(outputs)

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], options: Any) -> _Done:
        for output, parts in zip(outputs, inputs, strict=True):
            detail = _reduction(options.reduceOp)
            self._op(OpKind.REDUCE_SCATTER, output, bytes=sum(map(_bytes, parts)), detail=detail)
            others = self._with_others(output)
            if others is not None:
                # A member that does not run holds what the first that runs holds, for this rank too.
                output.copy_(combine(options.reduceOp, others.for_me(parts)))
                continue
            _copy(output, parts[self.rank()])
            _reduce(output, options.reduceOp, self.size())
        return _Done(outputs)

    def reduce_scatter_single(self, output: Tensor, own: Tensor, options: Any) -> _Done:
        parts = list(own.reshape(-1).chunk(self.size()))
        return self.reduce_scatter([output.view(-1)], [parts], options)

    def reduce_scatter_single_coalesced(
        self, outputs: list[Tensor], owns: list[Tensor], options: Any
    ) -> _Done:
        for output, own in zip(outputs, owns, strict=True):
            self.reduce_scatter_single(output, own, options)
        return _Done(outputs)

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], options: object) -> _Done:
        size = max(sum(map(_bytes, outputs)), sum(map(_bytes, inputs)))
        self._op(OpKind.ALL_TO_ALL, outputs[0], bytes=size)
        for output, given in zip(outputs, self._swapped(inputs, outputs), strict=True):
            _copy_by_place(output, given)
        return _Done(outputs)

    def _swapped(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """What each member gives, by position."""
        others = self._with_others(outputs[0])
        return inputs if others is None else others.swapped(inputs, outputs)

    def all_to_all_single(
        self, output: Tensor, own: Tensor, receive: list[int], send: list[int], options: object
    ) -> _Done:
        outputs = output.split(receive) if receive else output.chunk(self.size())
        inputs = own.split(send) if send else own.chunk(self.size())
        self._op(OpKind.ALL_TO_ALL, output, bytes=max(_bytes(output), _bytes(own)))
        for part, given in zip(outputs, self._swapped(inputs, outputs), strict=True):
            _copy_by_place(part, given)
        return _Done([output])

    # Messages.

    def _check_peer(self, rank: int) -> None:
        """torch takes any number for the rank that a message is with."""
        if not 0 <= rank < self.size():
            raise CollectError(
                f"a send or receive is with rank {rank} of a group of the host at {self._groups.site()}, "
                f"expected one of its {self.size()} ranks: 0 to {self.size() - 1}"
            )

    def send(self, tensors: list[Tensor], to: int, tag: int) -> _Done:
        self._check_peer(to)
        for tensor in tensors:
            others = self._with_others(tensor)
            if others is not None and others.runs(to):
                others.send(tensor, to, tag)
            self._op(OpKind.SEND, tensor, peer=(to - self.rank()) % self.size(), tag=tag)
        return _Done(tensors)

    def recv(self, tensors: list[Tensor], source: int, tag: int) -> _Done:
        self._check_peer(source)
        came: list[Receiver | None] = []
        for tensor in tensors:
            _zero(tensor)
            others = self._with_others(tensor)
            real = others is not None and others.runs(source)
            came.append(others.receiver(tensor, source, tag) if others is not None and real else None)

        def record() -> None:
            for tensor, receiver in zip(tensors, came, strict=True):
                self._op(OpKind.RECV, tensor, peer=(source - self.rank()) % self.size(), tag=tag)
                if receiver is not None:
                    tensor.copy_(receiver.take())

        def has_come() -> bool:
            return all(receiver is None or receiver.has_come() for receiver in came)

        return _Receiving(record, source, tensors, has_come)

    def recv_anysource(self, tensors: list[Tensor], tag: int) -> _Done:
        """From the next member: somebody must have sent it."""
        return self.recv(tensors, (self.rank() + 1) % self.size(), tag)


def _bytes(tensor: Tensor) -> int:
    return 0 if tensor is None else int(tensor.numel() * tensor.element_size())


# Tensors on the device keep what they hold: to change them would be work of the rank's.


def _copy(output: Tensor, own: Tensor) -> None:
    if output.device.type == "cpu" and output.data_ptr() != own.data_ptr():
        output.copy_(own.view(output.shape) if own.numel() == output.numel() else own)


def _copy_by_place(output: Tensor, own: Tensor) -> None:
    if output.device.type == "cpu":
        flat, sent = output.reshape(-1), own.reshape(-1)
        count = min(flat.numel(), sent.numel())
        output.zero_()
        output.view(-1)[:count].copy_(sent[:count])


def _zero(tensor: Tensor) -> None:
    if tensor.device.type == "cpu":
        tensor.zero_()


def _reduction(operation: Any) -> int:
    names = {"SUM": Reduction.SUM, "PRODUCT": Reduction.PROD, "MAX": Reduction.MAX, "MIN": Reduction.MIN}
    return int(names.get(_name_of(operation), Reduction.AVG if _is_avg(operation) else Reduction.MAX))


def _name_of(operation: Any) -> str:
    kinds = c10d.ReduceOp.RedOpType
    return next((name for name in ("SUM", "PRODUCT", "MAX", "MIN") if operation == getattr(kinds, name)), "")


def _is_avg(operation: Any) -> bool:
    return bool(operation == c10d.ReduceOp.RedOpType.AVG)


def _reduce(tensor: Tensor, operation: Any, members: int) -> None:
    """Of equal values: SUM = n x, PROD = x^n, XOR = x or 0; AVG, MAX, MIN, AND and OR leave them."""
    if tensor.device.type != "cpu" or members == 1:
        return
    kinds = c10d.ReduceOp.RedOpType
    if operation == kinds.SUM and tensor.dtype != torch.bool:
        tensor.mul_(members)
    elif operation == kinds.PRODUCT and tensor.dtype != torch.bool:
        tensor.pow_(members)
    elif operation == kinds.BXOR and members % 2 == 0:
        tensor.zero_()
