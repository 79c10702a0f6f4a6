"""What happens in a training, as JSON lines: one event a line, for people, ``prism spare watch`` and metrics.

Every line holds ``time_ns`` (Unix time), ``group``, ``position`` (of the rank inside its group), ``step``
(that was running; -1: none yet), ``event`` and the fields that :data:`FIELDS` names for it. Group -1 is a
process that has no group yet: a hot spare. Numbers that JSON lacks are the texts "nan", "inf" and "-inf".
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from prismcore.errors import SpareError

__all__ = ["FIELDS", "Event", "EventLog", "Value"]

Value = int | float | str | bool | list[int] | list[str] | None

FIELDS: Mapping[str, tuple[str, ...]] = {
    "start": ("groups", "redundancy", "micro_batches", "replica"),
    "membership": ("epoch", "members", "quorum", "cost_ms"),
    "failure": ("lost", "how", "detail", "noticed_ms"),
    "plan": ("outcome", "depth", "patches", "mine", "moved", "digest", "cost_ms"),
    "patch": ("parts", "cost_ms"),
    "commit": ("loss", "parts", "step_ms", "compute_ms", "reduce_ms", "epoch"),
    "rejoin": ("joined", "source", "bytes", "cost_ms", "depth"),
    "spare": ("waiting",),
    "wipe_out": ("lost_types", "last_committed", "checkpoint"),
    "checkpoint": ("path", "blocked_ms", "cost_ms"),
    "lighthouse": ("state", "cost_ms"),
    "stop": ("reason",),
}
"""The fields of each event. Readers take unknown events and fields, and fields that are missing."""

_KEYS = ("time_ns", "group", "position", "step", "event")
_to_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a log."""

    time_ns: int  #: Unix time
    group: int
    position: int
    step: int
    event: str
    fields: Mapping[str, Any] = field(default_factory=dict)  #: plain JSON values

    def line(self) -> bytes:
        """As one line of ASCII JSON that ends with a newline."""
        whole = {name: getattr(self, name) for name in _KEYS} | dict(self.fields)
        whole = {name: _plain(value) for name, value in whole.items()}
        return _to_json(whole).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Event:
        """Read one back. Raises SpareError where the line is none: cut, damaged, or of something else."""
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise SpareError(f"{len(line)} bytes found that are no JSON, expected an event") from error
        if not isinstance(found, dict):
            raise SpareError(f"JSON {type(found).__name__} found, expected an event")
        if not isinstance(found.get("event"), str) or any(type(found.get(n)) is not int for n in _KEYS[:4]):
            raise SpareError(f"JSON without {', '.join(_KEYS)} found, expected an event")
        head = {name: found.pop(name) for name in _KEYS}
        return cls(**head, fields=found)


class EventLog:
    """Appends events to a file and hands them to listeners; nothing of it ever raises into training.

    An event is one ``write`` to a file opened for appending, so that threads and processes of one machine
    may share a file, and any of them may be killed. (Not so over NFS: there take a file each, by ``{group}``
    in the path.) An event that cannot be written is counted in :attr:`dropped`; the first one, and the fault
    of a listener, is a warning of the logger of this module. A file that is renamed or removed while it is
    written (logrotate) is followed by a new one at the same path.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        group: int,
        position: int = 0,
        listeners: Sequence[Callable[[Event], None]] = (),
    ) -> None:
        """Open `path`, in which ``{group}`` and ``{position}`` are filled in; None: listeners only.

        Makes missing folders. Raises SpareError where the file cannot be opened for writing.
        """
        self.group = group  #: of the events to come; a spare that takes a place changes it
        self.position = position
        self.dropped = 0  #: events that could not be written
        self.path = None if path is None else _filled(path, group, position)
        self._listeners = list(listeners)
        self._descriptor = -1 if self.path is None else _open(self.path)
        self._cut = self.path is not None and _ends_within_a_line(self.path)
        self._warned = False
        # Watchers emit from threads of their own; listeners may emit, and signal handlers.
        self._lock = threading.RLock()

    def emit(self, event: str, /, *, step: int, **fields: Value) -> None:
        """Write `event` now, with `fields` as :data:`FIELDS` says."""
        with self._lock:
            happened = Event(time.time_ns(), self.group, self.position, step, event, fields)
            if self.path is not None:
                self._write(self.path, happened)
            for listener in tuple(self._listeners):
                try:
                    listener(happened)
                except Exception:
                    self._listeners.remove(listener)
                    words = "listener %r failed at %r and is heard no more"
                    _log.warning(words, listener, event, exc_info=True)

    def close(self) -> None:
        """Let go of the file. Events after it are dropped, and still reach the listeners."""
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> EventLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, path: Path, event: Event) -> None:
        try:
            clash = [name for name in _KEYS if name in event.fields]
            if clash:
                raise ValueError(f"field {clash[0]!r} is a key of every event, expected another name")
            line = event.line()
            if self._descriptor >= 0 and not _is_at(self._descriptor, path):
                self._reopen(path)
            # What a full disk or a kill has cut before this line must not damage it too.
            written = os.write(self._descriptor, b"\n" + line if self._cut else line)
            whole = written == len(line) + self._cut
            self._cut = not whole
            if not whole:
                raise OSError(0, f"only {written} of {len(line)} bytes were written")
        except Exception as error:
            self.dropped += 1
            if not self._warned:
                self._warned = True
                words = "event %r is not in %s: %s; later ones are counted only"
                _log.warning(words, event.event, path, error)

    def _reopen(self, path: Path) -> None:
        """Somebody has renamed or removed the file, as logrotate does: go on in a new one."""
        new = _open(path)
        os.close(self._descriptor)
        self._descriptor = new
        self._cut = _ends_within_a_line(path)


def _filled(path: Path, group: int, position: int) -> Path:
    return Path(str(path).replace("{group}", str(group)).replace("{position}", str(position)))


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A pipe without a reader is an error, not a wait.
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    except OSError as error:
        raise SpareError(f"events cannot be written to {path}: {error.strerror}; expected a file") from error


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _ends_within_a_line(path: Path) -> bool:
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.seek(0, os.SEEK_END) > 0 and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n"
    except OSError:
        return False


def _plain(value: Any) -> Any:
    """`value` as JSON has it; what has no such form becomes its text."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if hasattr(value, "tolist"):  # numbers and arrays of numpy and torch
        return _plain(value.tolist())
    return str(value)
