"""The communicator of one epoch: the ranks of one position in all groups that are in.

A new one is made for each epoch (torchft's process groups over gloo or NCCL) and never repaired.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
)
from torchft.process_group import ProcessGroup, ProcessGroupGloo, ProcessGroupNCCL

from prismcore.spare.runtime.bulletin_store import BulletinStore
from prismcore.spare.runtime.connections import address_in, end_connections
from prismcore.spare.runtime.guard import Guard, MembersLostError
from prismcore.spare.runtime.words import first_line

__all__ = ["Backend", "Communicator"]

Backend = Literal["gloo", "nccl"]

_POLL_S = 0.0005
_LEAVE_S = 5.0
_FEW_RANKS = 16
_MANY_RANKS = 64
"""From there on one member is not asked by all at each commit."""
_SHORTEST_S = 0.001
"""What torch takes for no limit is less than this."""


class _Gloo(ProcessGroupGloo):  # type: ignore[misc]
    """Met on a bulletin, and without a call that torch 2.14 warns about. ``backend``: of what a group is
    made, torch destroys this alone without holding the GIL."""

    backend: Any = None
    store: BulletinStore | None = None

    def meet(self, store: BulletinStore, rank: int, size: int) -> None:
        """Once all ``size`` ranks are there, they are connected."""
        self.store = store
        self._rank = rank
        self._pg = self._create_pg(store, rank, size)

    def _create_pg(self, store: Any, rank: int, world_size: int) -> Any:
        group = dist.ProcessGroup(store, rank, world_size)
        group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        options = dist.ProcessGroupGloo._Options()
        options._timeout = self._timeout
        options._devices = _gloo_devices()
        options._threads = 2 * len(options._devices)
        backend = dist.ProcessGroupGloo(store, rank, world_size, options)
        for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
            group._register_backend(torch.device(device), dist.ProcessGroup.BackendType.GLOO, backend)
        self.backend = backend
        return group


@functools.cache
def _gloo_devices() -> list[Any]:
    """Made once in a process: gloo asks for the host's name, and where a name server does not answer it waits
    5 s. The choice is gloo's: GLOO_SOCKET_IFNAME, else the host's name."""
    names = os.environ.get("GLOO_SOCKET_IFNAME", "")
    if names:
        return [dist.ProcessGroupGloo.create_device(interface=name) for name in names.split(",")]
    return [dist.ProcessGroupGloo.create_default_device()]


class Communicator:
    """Made by :meth:`open`. Every call waits for the others, and raises MembersLostError where one is lost;
    the communicator is of no use then, and is to be closed."""

    def __init__(self, group: ProcessGroup, guard: Guard, *, backend: Backend, rank: int, size: int) -> None:
        self._group = group
        self._guard = guard
        self._backend = backend
        self._given_up: list[Any] = []  # works that may still write
        self.rank = rank
        self.size = size

    @classmethod
    def open(
        cls,
        guard: Guard,
        *,
        backend: Backend,
        store: str,
        epoch: int,
        position: int,
        ranks: Sequence[int],
        rank: int,
        replica: str,
        timeout_s: float,
        meet_s: float,
    ) -> Communicator:
        """``store``: ``host:port`` of a :class:`Bulletin`, with NCCL of a TCPStore; ``ranks``: the groups
        that are in."""
        own_device = _device_setter(backend)
        limit = timedelta(seconds=timeout_s)

        def meet_by_gloo() -> ProcessGroup:
            group = _Gloo(timeout=limit)
            page = BulletinStore(
                store, epoch=epoch, position=position, members=len(ranks), timeout_s=timeout_s
            )
            try:
                group.meet(page, rank, len(ranks))
            except BaseException:
                page.close()
                raise
            return group

        def meet_by_nccl() -> ProcessGroup:
            own_device()
            group = ProcessGroupNCCL(timeout=limit)
            where = f"{store}/prismcore/{epoch}/{position}"
            group.configure(
                where, replica, rank, len(ranks), quorum_id=epoch, group_rank=0, global_ranks=list(ranks)
            )
            return group

        group = guard.run(
            meet_by_gloo if backend == "gloo" else meet_by_nccl,
            "meeting the other groups",
            dispose=_dispose,
            within_s=meet_s,
        )
        return cls(group, guard, backend=backend, rank=rank, size=len(ranks))

    def all_reduce(self, tensor: Tensor, what: str) -> None:
        """The sum, in place."""
        options = AllreduceOptions()
        options.reduceOp = dist.ReduceOp.SUM
        self._do(lambda: self._calls.allreduce([tensor], options), what)

    def sum_few(self, numbers: Sequence[float], what: str) -> list[float]:
        """Of a few whole numbers below 2^48, exact. Over gloo, up to some size, each rank gives its own to
        each: one step, where the ring takes 2 (n - 1), and all hear at once of one that is lost."""
        if self._backend != "gloo" or self.size > _FEW_RANKS:
            few = torch.tensor(numbers, dtype=torch.float64, device=self.device)
            self.all_reduce(few, what)
            return few.tolist()  # type: ignore[no-any-return]
        given = torch.tensor([*numbers] * self.size, dtype=torch.float64)
        came = torch.empty_like(given)
        self.all_to_all(came, given, (), (), what)
        by_rank, count = came.tolist(), len(numbers)
        return [sum(by_rank[at::count]) for at in range(count)]

    def barrier(self, what: str) -> None:
        """Who is through knows that all had come to it."""
        if self._backend == "nccl":
            self.sum_few([1], what)
        elif self.size > _MANY_RANKS:  # in log2(n) steps
            self._do(lambda: self._calls.barrier(BarrierOptions()), what)
        else:
            self._meet_on_page(what)

    def _meet_on_page(self, what: str) -> None:
        try:
            self._group.store.arrive()
            self._guard.wait(self._group.store.is_through, what)
        except RuntimeError as error:
            raise MembersLostError("collective", f"{what}: {error}") from error

    def all_to_all(
        self, out: Tensor, given: Tensor, out_splits: Sequence[int], splits: Sequence[int], what: str
    ) -> None:
        """``splits``: elements of ``given`` for each rank; none: equally many."""
        options = AllToAllOptions()
        self._do(lambda: self._calls.alltoall_base(out, given, list(out_splits), list(splits), options), what)

    def all_gather(self, outs: Sequence[Tensor], given: Tensor, what: str) -> None:
        """One of ``outs`` for each rank; all of one size."""
        options = AllgatherOptions()
        self._do(lambda: self._calls.allgather([list(outs)], [given], options), what)

    @property
    def _calls(self) -> Any:
        """gloo's own group: torch's dispatcher and torchft's wrapper add nothing to a call of it but time."""
        return self._group.backend if self._backend == "gloo" else self._group

    @property
    def device(self) -> torch.device:
        """Where what is sent has to be."""
        return torch.device("cpu" if self._backend == "gloo" else "cuda")

    @property
    def process_group(self) -> ProcessGroup:
        """For torchft's transports; to be used in :meth:`run`."""
        return self._group

    def run(self, work: Any, what: str) -> Any:
        """``work()`` in a thread, given up where a member is lost."""
        own_device = _device_setter(self._backend)

        def there() -> Any:
            own_device()
            return work()

        return self._guard.run(there, what)

    def close(self) -> None:
        """Ends the connections, in the background, so that others who wait for this member hear of it. What
        was given up is ended once it can do no more harm."""
        if self._group is None:
            return
        if self._backend == "nccl":
            self._group.abort(errored=False)
            self._group = None
            return
        self._group.store.close()
        if self._given_up:
            end_connections(filter(None, map(address_in, self._group.store.posts())))
        held = [self._group.backend]
        self._group = None
        _bury(held, self._given_up)

    def _do(self, start: Any, what: str) -> None:
        try:
            work = start()
        except RuntimeError as error:
            raise MembersLostError("collective", f"{what}: {first_line(error)}") from error
        try:
            self._guard.wait(_waiter(work, self._backend), what)
        except BaseException:
            self._given_up.append(work)
            raise
        try:
            work.wait()
            return
        except RuntimeError as error:
            detail = f"{what}: {first_line(error)}"
        # A traceback would keep the work, and that the connections, by whose end others hear of it.
        del work
        raise MembersLostError("collective", detail)


def _waiter(work: Any, backend: Backend) -> Any:
    if backend == "gloo":
        return _gloo_waiter(work)

    work.wait()  # the stream waits, not the host
    done = torch.cuda.Event()
    done.record()

    def poll(seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not done.query():
            if time.monotonic() > until:
                return False
            time.sleep(_POLL_S)
        return True

    return poll


def _gloo_waiter(work: Any) -> Callable[[float], bool]:
    """Waits in torch, which wakes nobody in between. In vain, that costs an exception, 0.1 to 0.2 ms a look;
    to ask every 2 ms instead takes 18 ms of each second (no benchmark of its own). (A callback of the work
    could come when Python has ended.)"""

    def wait(seconds: float) -> bool:
        try:
            work.wait(timedelta(seconds=max(seconds, _SHORTEST_S)))
        except RuntimeError:  # it took longer, or it failed
            return bool(work.is_completed())
        return True

    return wait


def _device_setter(backend: Backend) -> Callable[[], None]:
    """For a thread: the caller's device, which is a thread's own."""
    if backend == "gloo":
        return lambda: None
    device = torch.cuda.current_device()
    return lambda: torch.cuda.set_device(device)


def _dispose(late: ProcessGroup) -> None:
    """A group that was made when nobody waited for it any more."""
    if isinstance(late, _Gloo):
        assert late.store is not None
        late.store.close()
        _bury([late])
    else:
        late.abort(errored=False)


_graves: list[threading.Thread] = []


def _bury(held: list[Any], works: Sequence[Any] = ()) -> None:
    """Lets go of the one thing that is held (nobody else may hold it), in a thread of its own: gloo takes up
    to 10 ms for the end of each connection. A group with work under way blocks whoever destroys it until
    that work fails by its own limit; a process that ends before just leaves it."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(held[0]))

    def wait() -> None:
        for work in works:
            while not work.is_completed():
                time.sleep(0.01)
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(held[0]))
        held.clear()

    thread = threading.Thread(target=wait, name="prism_spare_grave", daemon=True)
    thread.start()
    _graves[:] = [grave for grave in _graves if grave.is_alive()]
    _graves.append(thread)


@atexit.register
def _wait_for_graves() -> None:
    """Python must not end within one, nor while works that were given up are still to fail: torch's threads
    would meet what is no more. Their connections are ended, so they fail soon."""
    until = time.monotonic() + _LEAVE_S
    for grave in tuple(_graves):
        grave.join(max(0.0, until - time.monotonic()))
