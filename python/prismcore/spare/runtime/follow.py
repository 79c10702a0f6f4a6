"""Reads event logs while they grow: several files, ones that appear later, rotated and truncated ones."""

from __future__ import annotations

import glob
import heapq
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prismcore.errors import SpareError
from prismcore.spare.runtime.events import Event

__all__ = ["Follower"]

_CHUNK = 1 << 16  # one a log while all are read side by side
_LONGEST_LINE = 1 << 20
_HEAD = 64  # bytes at the start of a log that tell it from another: a time is among them
_Key = tuple[int, int]


@dataclass(slots=True)
class _File:
    path: str
    size: int = 0  # when it was last looked at
    changed_ns: int = -1
    offset: int = 0  # read so far
    head: bytes = b""
    rest: bytes = b""  # a line whose end is not written yet
    skipping: bool = False  # inside a line that is too long


class Follower:
    """New events of all logs at `places`, each time it is asked.

    A place is a file, a folder (its ``*.jsonl``), a shell pattern, or a path with ``{group}`` or
    ``{position}`` as :class:`~prismcore.spare.runtime.events.EventLog` takes it. It need not exist yet. No
    file is held open, so that any number can be followed.
    """

    def __init__(self, places: Sequence[str]) -> None:
        self.places = tuple(places)
        self.damaged = 0  #: lines that were skipped, since they hold no event
        self.problems: dict[str, str] = {}  #: files that cannot be read now, and why
        self._files: dict[_Key, _File] = {}

    @property
    def files(self) -> int:
        """Logs that are followed now."""
        return len(self._files)

    @property
    def behind(self) -> int:
        """Bytes that are written and not read yet."""
        return sum(max(0, file.size - file.offset) for file in self._files.values())

    def poll(self) -> Iterator[Event]:
        """What was written since the last call, by time. Must be used up before the next call."""
        self.problems = {}
        self._look()
        return heapq.merge(*map(self._events, list(self._files.values())), key=lambda event: event.time_ns)

    def _look(self) -> None:
        missing = dict(self._files)
        for path in dict.fromkeys(path for place in self.places for path in _paths(place)):
            try:
                found = os.stat(path)
            except OSError as error:
                if not isinstance(error, FileNotFoundError):
                    self.problems[path] = error.strerror or str(error)
                continue
            if not stat.S_ISREG(found.st_mode):
                self.problems[path] = "is no file"
                continue
            key = (found.st_dev, found.st_ino)  # one file may have several names
            file = self._files.setdefault(key, _File(path))
            if key in missing:
                file.path = path
            file.size = found.st_size
            missing.pop(key, None)
        names: dict[str, dict[_Key, str]] = {}
        for key, file in missing.items():
            folder = os.path.dirname(file.path) or "."
            if folder not in names:
                names[folder] = _names_in(folder)
            # Renamed, as by logrotate: its end may not be read yet, and who holds it open writes on.
            name = names[folder].get(key)
            if name is None:
                self.damaged += bool(file.rest)
                del self._files[key]
            else:
                file.path = os.path.join(folder, name)

    def _events(self, file: _File) -> Iterator[Event]:
        more = True
        while more:
            try:
                data, more = self._read(file)
            except OSError as error:
                self.problems[file.path] = error.strerror or str(error)
                return
            yield from self._whole_lines(file, data)

    def _read(self, file: _File) -> tuple[bytes, bool]:
        """The next part of `file`, and whether there is more of it."""
        descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            found = os.fstat(descriptor)
            if (found.st_size, found.st_mtime_ns) == (file.offset, file.changed_ns):
                return b"", False
            if found.st_size < file.offset or os.pread(descriptor, len(file.head), 0) != file.head:
                self.damaged += bool(file.rest)
                file.offset, file.head, file.rest, file.skipping = 0, b"", b"", False
            if len(file.head) < _HEAD:
                file.head = os.pread(descriptor, _HEAD, 0)
            data = os.pread(descriptor, _CHUNK, file.offset)
        finally:
            os.close(descriptor)
        file.offset += len(data)
        file.size = max(file.offset, found.st_size)
        file.changed_ns = found.st_mtime_ns
        return data, len(data) == _CHUNK

    def _whole_lines(self, file: _File, data: bytes) -> Iterator[Event]:
        lines = (file.rest + data).split(b"\n")
        file.rest = lines.pop()
        if file.skipping and lines:
            del lines[0]
            file.skipping = False
        if len(file.rest) > _LONGEST_LINE or file.skipping:
            self.damaged += not file.skipping
            file.rest, file.skipping = b"", True
        for line in lines:
            if not line.strip():
                continue
            try:
                yield Event.from_line(line)
            except SpareError:
                self.damaged += 1


def _paths(place: str) -> list[str]:
    if os.path.isdir(place):
        return sorted(glob.glob(os.path.join(glob.escape(place), "*.jsonl")))
    parts = re.split(r"\{(?:group|position)\}", place)
    if len(parts) > 1:
        return sorted(glob.glob("*".join(map(glob.escape, parts))))
    if glob.has_magic(place) and not os.path.lexists(place):
        return sorted(glob.glob(place))
    return [place]


def _names_in(folder: str) -> dict[_Key, str]:
    found = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    found[(status.st_dev, status.st_ino)] = entry.name
    except OSError:
        pass  # gone with all that was in it
    return found
