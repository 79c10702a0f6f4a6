"""A rank's side of the record that it leaves (:mod:`prismcore.launch.protocol`)."""

from __future__ import annotations

import os
from typing import Any

from prismcore.launch.protocol import Values, say_leaving, write_record

__all__ = ["Record", "RecordClosedError"]


class RecordClosedError(Exception):
    """The program has closed the descriptor of the record; what has its number now is not ours."""


class Record:
    """Written once. Programs that make daemons close every descriptor, and may open others in their place."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._file = self._found()

    def say_leaving(self) -> None:
        """The rank's program is over, one way or the other: the record will be there soon."""
        if self._is_open():
            say_leaving(self._fd)

    def write(self, summary: dict[str, Any], graph: bytes, values: Values) -> None:
        """Raises RecordClosedError."""
        if not self._is_open():
            raise RecordClosedError(
                "the program has closed file descriptors that it did not open, and with them the record of "
                "this rank; expected it to close its own only"
            )
        write_record(self._fd, summary, graph, values)

    def _is_open(self) -> bool:
        try:
            return self._found() == self._file
        except OSError:
            return False

    def _found(self) -> tuple[int, int]:
        status = os.fstat(self._fd)
        return status.st_dev, status.st_ino
