"""What ranks write to stdout and stderr: the end of it is kept, and all of it may be passed on."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable

from prismcore import interrupts
from prismcore.launch.pauses import Pauses

__all__ = ["OutputPassing", "RankOutput", "TellOutput"]

TellOutput = Callable[[str], None]
"""Gets whole lines, each behind its rank: ``[rank 5] loss 0.25``; may take its time."""

LONGEST_LINE = 64 << 10
"""Of a line that is passed on; a longer one goes on in further lines."""

_KEPT_BYTES = 64 << 10
_READ_BYTES = 64 << 10
_MOST_READS = 64  # at the end: some process may still write
_POLL_S = 0.05

# A bar that redraws its line begins or ends it with a return, and a terminal's line ends in both: each line
# feed ends a line, and returns one that has begun.
_BEFORE_A_LINE = re.compile(rb"(?<![^\n])\r+")
_END_OF_A_LINE = re.compile(rb"\r+\n?")


class RankOutput:
    """The pipe of one rank: the end of what came through, and what has not been passed on yet.

    ``passed``: all of it is passed on. Any thread may read.
    """

    def __init__(self, fd: int, *, rank: int = -1, passed: bool = False) -> None:
        self.fd = fd
        self._prefix = f"[rank {rank}] ".encode()
        self._passed = passed
        self._lock = threading.Lock()
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._fresh: deque[bytes] = deque()
        self._begun = b""  # a line without its end
        os.set_blocking(fd, False)

    def read(self) -> bool:
        """False at the end."""
        with self._lock:
            return self._read() != 0

    def drain(self) -> str:
        """The end of what was written, all that is in the pipe included."""
        with self._lock, contextlib.suppress(OSError):
            for _ in range(_MOST_READS):
                if self._read() <= 0:
                    break
        return b"".join(self._chunks)[-_KEPT_BYTES:].decode(errors="replace")

    def mute(self) -> None:
        """What is written from now on is not passed on."""
        self.drain()
        self._passed = False

    def close(self) -> None:
        with self._lock:
            os.close(self.fd)
            self.fd = -1

    def take_lines(self, *, ended: bool = False) -> str:
        """Whole lines that are still to be passed on; ``ended``: nothing comes after them. One thread
        alone may take them."""
        with self._lock:
            data = b"".join(self._fresh)
            self._fresh.clear()
        data = _BEFORE_A_LINE.sub(b"", self._begun + data)
        returns = b"\r" if data.endswith(b"\r") and not ended else b""  # a line feed may come
        data = _END_OF_A_LINE.sub(b"\n", data.rstrip(b"\r") if returns else data)
        end = len(data) if ended else data.rfind(b"\n") + 1
        whole, begun = data[:end], data[end:]
        while len(begun) >= LONGEST_LINE:
            whole += begun[:LONGEST_LINE] + b"\n"
            begun = begun[LONGEST_LINE:]
        self._begun = begun + returns
        if not whole:
            return ""
        lines = whole.removesuffix(b"\n").replace(b"\n", b"\n" + self._prefix)
        return (self._prefix + lines + b"\n").decode(errors="replace")

    def _read(self) -> int:
        """Bytes that came; 0 at the end, -1 where there are none now."""
        if self.fd < 0:
            return 0
        try:
            data = os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            return -1
        if data and self._passed:
            self._fresh.append(data)
        if data:
            self._chunks.append(data)
            self._size += len(data)
        while self._chunks and self._size - len(self._chunks[0]) > _KEPT_BYTES:
            self._size -= len(self._chunks.popleft())
        return len(data)


class OutputPassing:
    """A thread that passes on what ranks write, whoever else is busy.

    It reads no further while ``tell`` takes its time, so that a rank that writes much waits, as before a
    slow terminal, and nothing piles up here. ``pauses`` gets the times that it takes.
    """

    def __init__(self, tell: TellOutput, pauses: Pauses | None = None) -> None:
        self._tell: TellOutput | None = tell
        self._pauses = pauses or Pauses()
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()  # of the selector, what it holds, and the pipe
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._ended: deque[RankOutput] = deque()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="prism-output", daemon=True)
        self._thread.start()

    def add(self, output: RankOutput) -> None:
        """Not once it is closed."""
        with self._lock:
            self._selector.register(output.fd, selectors.EVENT_READ, output)

    def end(self, output: RankOutput) -> None:
        """It was drained, and is about to be closed."""
        self._forget(output, output.fd)
        self._ended.append(output)
        self._wake()

    def close(self, *, limit_s: float | None = None) -> None:
        """Waits until all is passed on that was read, for so long at most."""
        self._over = True
        self._wake()
        until = None if limit_s is None else time.monotonic() + limit_s
        while self._thread.is_alive() and (until is None or time.monotonic() < until):
            if until is None:
                interrupts.check()
            self._thread.join(_POLL_S)

    def _wake(self) -> None:
        with self._lock, contextlib.suppress(BlockingIOError):
            if self._wake_write >= 0:
                os.write(self._wake_write, b".")

    def _run(self) -> None:
        try:
            while self._look():
                pass
        finally:
            with self._lock:
                self._selector.close()
                os.close(self._wake_read)
                os.close(self._wake_write)
                self._wake_write = -1

    def _look(self) -> bool:
        for key, _ in self._selector.select():
            output: RankOutput | None = key.data
            if output is None:
                os.read(self._wake_read, 4096)
                continue
            try:
                more = output.read()
            except OSError:
                more = False
            if not more:
                self._forget(output, key.fd)
            self._pass(output.take_lines())
        over = self._over  # before the last look at those that have ended
        while self._ended:
            self._pass(self._ended.popleft().take_lines(ended=True))
        return not over

    def _forget(self, output: RankOutput, fd: int) -> None:
        """The descriptor may be another output's meanwhile."""
        with self._lock:
            held = self._selector.get_map()
            key = None if held is None else held.get(fd)  # None: closed
            if key is not None and key.data is output:
                self._selector.unregister(fd)

    def _pass(self, lines: str) -> None:
        if not lines or self._tell is None:
            return
        self._pauses.begin()
        try:
            self._tell(lines)
        except Exception:  # whoever reads it has gone: no matter of the ranks, which write on
            self._tell = None
        finally:
            self._pauses.end()
