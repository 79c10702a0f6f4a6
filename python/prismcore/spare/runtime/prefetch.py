"""Reads ahead in threads what is expected, and at once what is not."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from prismcore.errors import SpareError
from prismcore.spare.runtime.work import Work

__all__ = ["NotWanted", "Prefetch", "Turn"]

T = TypeVar("T")

Turn = Callable[[], AbstractContextManager[None]]
"""To be in the data set within; entering it may wait, or raise `NotWanted`."""


class NotWanted(BaseException):
    """What is being read was dropped meanwhile. No failure, so nobody takes it for one."""


@dataclass(slots=True, eq=False)
class _Item(Generic[T]):
    """Being read, then ready."""

    ready: bool = False
    value: T | None = None
    error: BaseException | None = None


class Prefetch(Generic[T]):
    """Holds at most `ahead` items, those expected first.

    One lock guards everything; it is never held while reading. With one worker, the data set sees one
    thread at a time, and a caller who waits for its turn goes before the worker.
    """

    def __init__(self, read: Callable[[Work, Turn], T], *, ahead: int, workers: int) -> None:
        self._read = read
        self._ahead = ahead
        self._workers = workers
        self._threads: list[threading.Thread] = []
        self._changed = threading.Condition()  # reentrant: a finalizer may run inside it
        self._queue: OrderedDict[Work, None] = OrderedDict()  # expected, not taken up yet
        self._items: dict[Work, _Item[T]] = {}  # taken up
        self._callers = 0  # that read themselves
        self._inside = 0  # threads in the data set
        self._closed = False

    def expect(self, works: Sequence[Work]) -> None:
        order = dict.fromkeys(works)
        with self._changed:
            self._refuse_closed()
            if self._workers == 0:
                return
            window = list(order)[: self._ahead]
            self._items = {work: self._items[work] for work in window if work in self._items}
            self._queue = OrderedDict.fromkeys(work for work in order if work not in self._items)
            self._changed.notify_all()
            while self._queue and len(self._threads) < self._workers:
                thread = threading.Thread(
                    target=self._run, name=f"prism-data-{len(self._threads)}", daemon=True
                )
                thread.start()
                self._threads.append(thread)

    def take(self, work: Work) -> T:
        with self._changed:
            self._refuse_closed()
            while (item := self._items.get(work)) is not None and not item.ready:
                self._changed.wait()
                self._refuse_closed()
            if item is not None:
                del self._items[work]
                self._changed.notify_all()
                return _result(item)
            self._queue.pop(work, None)
            self._callers += 1
            self._changed.notify_all()
        try:
            return self._read(work, lambda: self._turn(lambda: True, caller=True))
        except NotWanted:
            raise SpareError(_CLOSED) from None
        finally:
            with self._changed:
                self._callers -= 1
                self._changed.notify_all()

    def stop(self) -> None:
        """Workers end as soon as they are out of the data set."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def close(self, wait_s: float) -> None:
        self.stop()
        with self._changed:
            self._queue.clear()
            self._items.clear()
        end = time.monotonic() + wait_s
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))

    def _refuse_closed(self) -> None:
        if self._closed:
            raise SpareError(_CLOSED)

    def _run(self) -> None:
        while self._read_next():
            pass

    def _read_next(self) -> bool:
        """Reads what is expected first; False when closed. A call an item: nothing of it stays alive
        in the thread."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._may_take_up())
            if self._closed:
                return False
            work, _ = self._queue.popitem(last=False)
            item: _Item[T] = _Item()
            self._items[work] = item
        try:
            item.value = self._read(
                work, lambda: self._turn(lambda: self._items.get(work) is item, caller=False)
            )
        except NotWanted:
            return True
        except BaseException as error:  # raised where the work is asked for
            item.error = error
        with self._changed:
            item.ready = True
            self._changed.notify_all()
        return True

    def _may_take_up(self) -> bool:
        return bool(self._queue) and len(self._items) < self._ahead

    @contextmanager
    def _turn(self, wanted: Callable[[], bool], *, caller: bool) -> Iterator[None]:
        alone = self._workers <= 1
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._closed
                    or not wanted()
                    or not alone
                    or (self._inside == 0 and (caller or self._callers == 0))
                )
            )
            if self._closed or not wanted():
                raise NotWanted
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()


_CLOSED = "the loader is closed, expected no more work; make a new one"


def _result(item: _Item[T]) -> T:
    if item.error is not None:
        raise item.error
    return item.value  # type: ignore[return-value]  # T may hold None
