"""The collector's side: starts the warm parent, asks it for ranks, gathers what they leave.

This process never imports torch. A rank's output comes through a pipe and its record through an
anonymous file, so that nothing is left behind however a process ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import selectors
import subprocess
import sys
import sysconfig
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import prismcore
from prismcore import interrupts
from prismcore.errors import CollectError
from prismcore.launch.environment import job_environment
from prismcore.launch.output import OutputPassing, RankOutput, TellOutput
from prismcore.launch.pauses import Pauses
from prismcore.launch.processes import is_stopped, kill_group, signal_name
from prismcore.launch.protocol import Channel, Values, is_leaving, read_record, write_record
from prismcore.units import format_s

__all__ = ["Launcher", "RankEnd"]

_LINES_TOLD = 15
_GRACE_S = 0.8
_LEAST_PREPARE_S = 60.0  # what is not the program's own is to be trusted for so long on a busy machine
_ANSWER_S = 10.0  # the warm parent ends a rank at once
_STOP_S = 5.0  # a rank writes its record in a fraction of a second, on a machine that is not busy
_POLL_S = 0.2
_READS_AT_ONCE = 64
_PIPE_BYTES = 1 << 20
_STARTS_AT_ONCE = 32  # descriptors on their way count as open files of the user
_CROWDED_S = 0.05
_PAUSE_S = 1.0  # this process looks more often unless it is stopped, or busy with something else


@dataclass(kw_only=True, slots=True, frozen=True)
class RankEnd:
    """How a rank ended. ``exit_code`` is negative where a signal ended it (-9: SIGKILL)."""

    rank: int
    exit_code: int
    timed_out: bool
    summary: Mapping[str, Any] | None
    """What the rank said of itself; None where it ended before it could."""
    graph: bytes
    values: Values
    """Objects that it gave to other ranks."""
    output: str
    """The end of what it wrote to stdout and stderr."""
    slow_imports: Sequence[str]
    """Modules that the rank has to import itself, since trying them for all ranks took too long."""
    cpu_s: float
    wall_s: float
    max_rss_bytes: int

    def last_lines(self, count: int = _LINES_TOLD) -> list[str]:
        lines = [line.rstrip() for line in self.output.splitlines() if line.strip()]
        return lines[-count:]


@dataclass(slots=True)
class _Running:
    record_fd: int
    output: RankOutput
    started: float
    due_from: float
    """By the launcher's clock."""
    process: int = 0
    """0: not known yet."""
    timed_out: bool = False


class Launcher:
    """A warm parent and its ranks; leave its ``with`` block and all of them are gone."""

    def __init__(
        self,
        *,
        command: Sequence[str],
        folder: Path,
        world_size: int,
        gpus_per_node: int,
        device: str,
        cluster_text: str,
        measure_host: bool,
        iterations: int,
        routing: str = "balanced",
        rules: Path | None = None,
        preload: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        rank_timeout_s: float = 600.0,
        step_timeout_s: float | None = None,
        longer: str = "",
        tell_output: TellOutput | None = None,
    ) -> None:
        """``step_timeout_s``: one import, or the file of rules, may take so long before ranks start; None:
        as long as a rank. ``longer``: the flag to allow more with. ``tell_output``: gets what ranks write
        that run in an emulation."""
        self._setup = {
            "command": list(command),
            "folder": str(folder),
            "world_size": world_size,
            "gpus_per_node": gpus_per_node,
            "device": device,
            "cluster_text": cluster_text,
            "measure_host": measure_host,
            "iterations": iterations,
            "routing": routing,
            "rules": None if rules is None else str(folder / rules),
            "preload": list(preload),
            "collector_pid": os.getpid(),
        }
        self._environment = job_environment(os.environ, environment or {})
        self._rank_timeout_s = rank_timeout_s
        self._step_timeout_s = rank_timeout_s if step_timeout_s is None else step_timeout_s
        self._longer = longer
        self._running: dict[int, _Running] = {}
        self._unread: deque[dict[str, Any]] = deque()
        self._values_fd: int | None = None
        self._asked: set[int] = set()  # for, and not forked yet
        self._slow_imports: list[str] = []
        self._selector = selectors.DefaultSelector()
        self._looked = time.perf_counter()
        self._away_s = 0.0  # while nobody looked
        self.pauses = Pauses()
        """When ranks may have waited for this process, or for whoever reads what they write."""
        self._tell_output = tell_output
        self._passing: OutputPassing | None = None

    @property
    def running(self) -> list[int]:
        return list(self._running)

    @property
    def slow_imports(self) -> Sequence[str]:
        """Modules that ranks have to import themselves, since trying them for all took too long."""
        return self._slow_imports

    def is_leaving(self, rank: int) -> bool:
        """The program of `rank` is over, and the rank writes its record, or has ended."""
        return rank not in self._running or is_leaving(self._running[rank].record_fd)

    def is_stopped(self, rank: int) -> bool:
        """A signal or a debugger has stopped the process of `rank`."""
        return rank in self._running and is_stopped(self._running[rank].process)

    def __enter__(self) -> Launcher:
        with contextlib.ExitStack() as undo:
            undo.callback(self._selector.close)
            self._channel, theirs = Channel.pair()
            undo.callback(self._channel.close)
            undo.callback(theirs.close)
            read_end, write_end = os.pipe()
            undo.callback(os.close, read_end)
            with os.fdopen(write_end, "wb") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "prismcore.launch.parent", str(theirs.fileno())],
                    env=self._environment | {"PYTHONPATH": self._python_path()},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            self._parent_output = RankOutput(read_end)
            undo.pop_all()
            theirs.close()
        try:
            self._selector.register(self._channel, selectors.EVENT_READ, None)
            self._selector.register(read_end, selectors.EVENT_READ, self._parent_output)
            self._send(self._setup)
            self._wait_until_ready()
            if self._tell_output is not None:
                self._passing = OutputPassing(self._tell_output, self.pauses)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(output_s=_GRACE_S if kind is not None and not issubclass(kind, Exception) else None)

    def close(self, *, output_s: float | None = None) -> None:
        """Ends every process within a second, then waits, for so long at most, until somebody has taken
        what the ranks wrote."""
        self._channel.close()  # the parent ends its ranks, then itself
        try:
            self._process.wait(timeout=_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its ranks die with it
            self._process.wait()
        finally:
            kill_group(self._process.pid, leader_lives=False)  # what an import was running
            self._selector.close()
            self._parent_output.close()
            for running in self._running.values():
                self._end_output(running.output)
                os.close(running.record_fd)
            self._running.clear()
            if self._values_fd is not None:
                os.close(self._values_fd)
                self._values_fd = None
            if self._passing is not None:
                self._passing.close(limit_s=output_s)

    def start(
        self, rank: int, *, want_groups: bool = False, port: tuple[int, int, int] | None = None
    ) -> None:
        """Forks a rank.

        ``want_groups``: its summary holds the process groups of the whole job. ``port``: descriptors
        of an emulation's ports and exchange, and the number of the rank in both.

        Raises CollectError where the process that forks ranks is gone, or does not answer.
        """
        self._await_forks(_STARTS_AT_ONCE - 1)
        request: dict[str, Any] = {
            "run": rank,
            "want_groups": want_groups,
            "port": None if port is None else port[2],
        }
        with contextlib.ExitStack() as undo:
            record_fd = os.memfd_create(f"prism-rank-{rank}")
            undo.callback(os.close, record_fd)
            read_end, write_end = os.pipe()
            undo.callback(os.close, read_end)
            with contextlib.suppress(OSError):  # a user may have used up what the system allows
                fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            try:
                passed = self._passing is not None and port is not None
                output = RankOutput(read_end, rank=rank, passed=passed)
                running = _Running(record_fd, output, time.perf_counter(), self._clock())
                if self._passing is not None and passed:
                    self._passing.add(output)
                else:
                    self._selector.register(read_end, selectors.EVENT_READ, output)
                self._running[rank] = running
                undo.pop_all()
                ports = [] if port is None else list(port[:2])
                values = [] if self._values_fd is None else [self._values_fd]
                request["has_values"] = bool(values)
                self._send(request, [record_fd, write_end, *ports, *values])
                self._asked.add(rank)
            finally:
                os.close(write_end)

    def give(self, values: Values) -> None:
        """Ranks that start from now on know these objects of other ranks."""
        fd = os.memfd_create("prism-values")
        try:
            write_record(fd, {}, b"", values)
        except BaseException:
            os.close(fd)
            raise
        if self._values_fd is not None:
            os.close(self._values_fd)
        self._values_fd = fd

    def next_end(self) -> RankEnd:
        """Waits until a rank ends. A signal that is held may end the wait."""
        end = self.end_within(math.inf)
        assert end is not None
        return end

    def end_within(self, limit_s: float) -> RankEnd | None:
        """The same for so long; None: none has ended."""
        until = self._clock() + limit_s
        while not self._unread:
            interrupts.check()
            self._poll(min(_POLL_S, max(until - self._clock(), 0)))
            self._end_overdue()
            if not self._unread and self._clock() >= until:
                return None
        return self._ended(self._unread.popleft())

    def mute(self) -> None:
        """What ranks write from now on is kept, and passed on to nobody."""
        for running in self._running.values():
            running.output.mute()

    def kill(self, rank: int) -> None:
        """If it still runs; it ends like others."""
        if rank in self._running:
            self._send({"kill": rank})

    def stop_all(self) -> Iterator[RankEnd]:
        """Asks every rank to leave its record as it is now, and yields what they leave within a few
        seconds."""
        self._send({"stop": True})
        deadline = self._clock() + _STOP_S
        while self._running and (self._unread or self._clock() < deadline):
            interrupts.check()
            if not self._unread:
                self._poll(_POLL_S)
            if self._unread:
                yield self._ended(self._unread.popleft())

    def _send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        until = self._clock() + _ANSWER_S
        while True:
            try:
                return self._channel.send(message, fds)
            except ConnectionError as error:  # a broken pipe too
                raise self._parent_is_gone() from error
            except OSError as error:
                # So many descriptors are on their way, of other processes of this user too.
                crowded = error.errno == errno.ETOOMANYREFS
                if not crowded or self._clock() > until:
                    more = "; allow more open files (ulimit -n)" if crowded else ""
                    raise CollectError(
                        f"the process that starts the ranks cannot be told more: {error.strerror}{more}"
                    ) from error
            self._await_forks(0)
            time.sleep(_CROWDED_S)

    def _await_forks(self, most: int) -> None:
        """Until of the ranks that were asked for no more than ``most`` are still to be forked."""
        limit_s = max(self._step_timeout_s, _LEAST_PREPARE_S)
        until = self._clock() + limit_s
        while len(self._asked) > most:
            interrupts.check()
            if not self._poll(_POLL_S) and self._clock() > until:
                raise CollectError(
                    f"the process that starts the ranks ({self._process.pid}) has not started them within "
                    f"{format_s(limit_s)}; is it stopped?"
                )

    def ends(self) -> list[RankEnd]:
        """The ranks that have ended meanwhile; does not wait."""
        for _ in range(_READS_AT_ONCE):  # of a program that prints much
            if not self._poll(0):
                break
        self._end_overdue()
        found = [self._ended(message) for message in self._unread]
        self._unread.clear()
        return found

    def _poll(self, timeout_s: float) -> bool:
        """Takes what has come of output and messages. False: nothing had."""
        ready = self._selector.select(timeout_s)
        if self._was_away(timeout_s):
            ready = self._selector.select(0)  # whoever was stopped in the middle has found nothing
        for key, _ in ready:
            if key.data is None:
                self._take_messages()
            elif not key.data.read():
                self._selector.unregister(key.fileobj)
        return bool(ready)

    def _take_messages(self) -> None:
        """All that have come."""
        first = True
        with contextlib.suppress(BlockingIOError):
            while (received := self._channel.receive(wait=False)) is not None:
                first = False
                message = received[0]
                if "failed" in message:
                    raise CollectError(message["failed"])
                if "forked" in message:
                    self._asked.discard(message["forked"])
                    self._running[message["forked"]].process = message["process"]
                else:
                    self._unread.append(message)
            if first:  # else what it said comes before that it is gone
                raise self._parent_is_gone()

    def _was_away(self, waited_s: float) -> bool:
        """Whether this process was stopped, or busy elsewhere, since its last look but for that wait.
        Nobody took what ranks had to say, so that this is no time of theirs."""
        now = time.perf_counter()
        away_s = now - self._looked - waited_s
        self._looked = now
        if away_s < _PAUSE_S:
            return False
        self._away_s += away_s
        self.pauses.add(away_s)
        return True

    def _clock(self) -> float:
        """Seconds in which this process looked: limits count by it."""
        return time.perf_counter() - self._away_s

    def _wait_until_ready(self) -> None:
        doing, limit_s = "importing torch", max(self._step_timeout_s, _LEAST_PREPARE_S)
        began = self._clock()
        while True:
            interrupts.check()
            self._poll(_POLL_S)
            while self._unread:
                message = self._unread.popleft()
                if "ready" in message:
                    self._slow_imports = message["slow"]
                    return
                doing, limit_s = message["preparing"], self._step_timeout_s
                began = self._clock()
            if self._clock() - began > limit_s:
                stopped = is_stopped(self._process.pid)
                raise CollectError(
                    f"{doing} has not ended within {format_s(limit_s)}, before any rank has started"
                    f"{': a signal or a debugger has stopped the process' if stopped else ''}; look for a "
                    f"sleep, an endless loop or input that never comes{self._or_longer()}"
                )

    def _or_longer(self) -> str:
        return f", or allow more ({self._longer})" if self._longer else ""

    def _parent_is_gone(self) -> CollectError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_GRACE_S)
        lines = [line for line in self._parent_output.drain().splitlines() if line.strip()]
        status = self._process.returncode
        if status is None:
            how = f"({self._process.pid}) has hung up"
        elif status < 0:
            how = f"was killed by {signal_name(-status)}"
        else:
            how = f"ended early (status {status})"
        what = f"the process that prepares the ranks {how}"
        if len(lines) <= 1:
            return CollectError(f"{what}: {lines[0] if lines else 'it wrote nothing'}")
        return CollectError(f"{what}; its last lines:\n  " + "\n  ".join(lines[-_LINES_TOLD:]))

    def _ended(self, message: dict[str, Any]) -> RankEnd:
        rank = message["ended"]
        running = self._running.pop(rank)
        output = self._end_output(running.output)
        record = read_record(running.record_fd)
        os.close(running.record_fd)
        return RankEnd(
            rank=rank,
            exit_code=message["status"],
            timed_out=running.timed_out,
            summary=record[0] if record else None,
            graph=record[1] if record else b"",
            values=record[2] if record else {},
            output=output,
            slow_imports=self._slow_imports,
            cpu_s=message["cpu_s"],
            wall_s=time.perf_counter() - running.started,
            max_rss_bytes=message["max_rss_bytes"],
        )

    def _end_output(self, output: RankOutput) -> str:
        """The end of what a rank wrote, which is gone."""
        if self._selector.get_map() is not None:  # not closed
            with contextlib.suppress(KeyError):
                self._selector.unregister(output.fd)
        told = output.drain()
        if self._passing is not None:
            self._passing.end(output)
        output.close()
        return told

    def _end_overdue(self) -> None:
        """To be called behind a poll, which takes all that has come: a rank that has ended is not late."""
        now = self._clock()
        ended = {message.get("ended") for message in self._unread}
        for rank, running in self._running.items():
            if rank in ended:
                continue
            over_s = now - running.due_from - self._rank_timeout_s
            if not running.timed_out and over_s > 0:
                running.timed_out = True
                self._send({"kill": rank})
            if over_s > _ANSWER_S:
                raise CollectError(
                    f"rank {rank} has not ended within {format_s(self._rank_timeout_s)} (limit of a rank), "
                    f"and the process that starts the ranks ({self._process.pid}) does not end it; is it "
                    "stopped?"
                )

    @staticmethod
    def _python_path() -> str:
        """The parent finds the same prismcore as this process, wherever it was imported from."""
        here = Path(prismcore.__file__).resolve().parent.parent
        installed = {Path(sysconfig.get_path(key)).resolve() for key in ("purelib", "platlib")}
        first = "" if here in installed else str(here)
        return os.pathsep.join(filter(None, [first, os.environ.get("PYTHONPATH", "")]))
