"""Where checkpoints lie: a folder a step, which is there and complete, or not there.

A save writes into a *draft*, a hidden folder beside the complete ones, and renames it when every byte of
it has reached the disk. Removal renames first, too. So a process that is killed at any moment leaves drafts
and half removed folders behind, under hidden names, and never a half of a checkpoint under its own name.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import time
import uuid
import warnings
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from prismcore.errors import CheckpointError

__all__ = ["CheckpointFolder", "Draft", "FileSum", "Record"]

RECORD = "checkpoint.json"
FORMAT = 1
_COMPLETE = re.compile(r"step-(\d{9,18})\Z")
_DRAFT = ".saving-"
_REMOVING = ".removing-"
_LOCK = ".lock"
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL)
DEAD_AFTER_S = 86_400.0
"""A draft of this age is nobody's any more, where the file system has no locks to tell."""
_AT_ONCE_BYTES = 1 << 20


class FileSum(NamedTuple):
    """What a file must be when it is read again."""

    bytes: int
    crc32: int


@dataclass(kw_only=True, slots=True, frozen=True)
class Record:
    """``checkpoint.json``: what a complete checkpoint consists of."""

    step: int
    ranks: int
    """Of the group that wrote it."""
    files: dict[str, FileSum]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())

    def to_json(self) -> str:
        return json.dumps(
            {
                "format": FORMAT,
                "step": self.step,
                "ranks": self.ranks,
                "files": {n: list(s) for n, s in self.files.items()},
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Record:
        """Raises ValueError, KeyError or TypeError for anything else than what :meth:`to_json` writes."""
        found: Any = json.loads(text)
        if found["format"] != FORMAT:
            raise ValueError(f"format {found['format']!r} found, expected {FORMAT}")
        files = {str(name): FileSum(int(size), int(crc)) for name, (size, crc) in found["files"].items()}
        if any(Path(name).name != name for name in files):
            raise ValueError("a file outside the folder found")
        return cls(step=int(found["step"]), ranks=int(found["ranks"]), files=files)


class CheckpointFolder:
    """The complete checkpoints below ``path``, which need not be there yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def path_of(self, step: int) -> Path:
        return self.path / f"step-{step:09d}"

    def steps(self) -> list[int]:
        """Of complete checkpoints, ascending; their contents are not looked at.

        Raises:
            CheckpointError: the folder cannot be read.
        """
        return sorted(int(m[1]) for m in map(_COMPLETE.match, self._names()) if m)

    def latest(self) -> int | None:
        """The newest complete one whose files are all there in full size; a damaged one is warned of and
        passed over."""
        for step in reversed(self.steps()):
            try:
                record = self.record(step)
                self._check_sizes(record)
            except CheckpointError as error:
                warnings.warn(f"{error}; passed over", stacklevel=3)
                continue
            return step
        return None

    def record(self, step: int) -> Record:
        """Raises:
        CheckpointError: no such checkpoint, or its record is damaged.
        """
        path = self.path_of(step)
        try:
            record = Record.from_json((path / RECORD).read_text())
        except FileNotFoundError:
            if path.is_dir():
                raise CheckpointError(f"{path}: no {RECORD} found: damaged {self._others(step)}") from None
            raise CheckpointError(
                f"{self.path}: no checkpoint of step {step} found {self._others(step)}"
            ) from None
        except OSError as error:
            raise CheckpointError(f"{path / RECORD}: {error.strerror} {self._others(step)}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{path / RECORD} is damaged: {error} {self._others(step)}") from error
        if record.step != step:
            raise CheckpointError(f"{path / RECORD}: step {record.step} found, expected {step}: damaged")
        return record

    def verify(self, record: Record, names: Iterable[str]) -> None:
        """Reads the files of these names and compares their CRC-32.

        Raises:
            CheckpointError: a file is missing, has another size or other bytes.
        """
        self._check_sizes(record)
        for name in names:
            path = self.path_of(record.step) / name
            crc = 0
            try:
                with path.open("rb") as stream:
                    while some := stream.read(_AT_ONCE_BYTES):
                        crc = zlib.crc32(some, crc)
            except OSError as error:
                raise CheckpointError(f"{path}: {error.strerror} {self._others(record.step)}") from error
            if crc != record.files[name].crc32:
                raise CheckpointError(
                    f"{path}: CRC-32 {crc:08x} found, expected {record.files[name].crc32:08x}: damaged "
                    f"{self._others(record.step)}"
                )

    def begin(self, step: int) -> Draft:
        """A folder to write the checkpoint of ``step`` into. What killed writers left is removed; damaged
        checkpoints of this step or newer get another name and stay for a look at them.

        Raises:
            CheckpointError: the folder cannot be written, or holds this step or a newer one.
        """
        damaged = []
        for there in (s for s in reversed(self.steps()) if s >= step):
            if self._is_whole(there):
                raise CheckpointError(
                    f"{self.path}: a checkpoint of step {there} found, expected none from step {step} on: "
                    "after going back to an older step, call discard_after() or take another folder"
                )
            damaged.append(there)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for there in damaged:  # training went back because of it
                self.path_of(there).rename(self.path / f"damaged-{there:09d}-{uuid.uuid4().hex}")
            self._remove_leftovers()
            return Draft(self, step)
        except OSError as error:
            raise CheckpointError(
                f"{error.filename or self.path}: {error.strerror}: no checkpoint of step {step} written"
            ) from error

    def remove(self, steps: Iterable[int]) -> None:
        """Raises:
        OSError: a folder cannot be removed; none is left half removed under its name.
        """
        for step in steps:
            self._remove(self.path_of(step))

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.path)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CheckpointError(f"{self.path}: {error.strerror}: no checkpoints can be read") from error

    def _others(self, step: int) -> str:
        others = [s for s in self.steps() if s != step]
        return f"(other steps there: {', '.join(map(str, others[-8:])) or 'none'})"

    def _is_whole(self, step: int) -> bool:
        try:
            self._check_sizes(self.record(step))
        except CheckpointError:
            return False
        return True

    def _check_sizes(self, record: Record) -> None:
        for name, expected in record.files.items():
            path = self.path_of(record.step) / name
            try:
                found = path.stat().st_size
            except OSError as error:
                raise CheckpointError(
                    f"{path}: {error.strerror}: damaged {self._others(record.step)}"
                ) from error
            if found != expected.bytes:
                raise CheckpointError(
                    f"{path}: {found} bytes found, expected {expected.bytes}: damaged "
                    f"{self._others(record.step)}"
                )

    def _remove(self, path: Path) -> None:
        aside = self.path / f"{_REMOVING}{uuid.uuid4().hex}"
        try:
            path.rename(aside)
        except FileNotFoundError:  # another did
            return
        shutil.rmtree(aside)

    def _remove_leftovers(self) -> None:
        for name in self._names():
            path = self.path / name
            if name.startswith(_REMOVING):
                shutil.rmtree(path, ignore_errors=True)
            elif name.startswith(_DRAFT):
                draft = path.with_name(name.removesuffix(_LOCK))
                if _is_dead(draft):
                    self._remove(draft)
                    _lock_path(draft).unlink(missing_ok=True)


class Draft:
    """A checkpoint that is being written; its lock is held, so that others leave it alone."""

    def __init__(self, folder: CheckpointFolder, step: int) -> None:
        self._folder = folder
        self._step = step
        self.path = folder.path / f"{_DRAFT}{step:09d}-{uuid.uuid4().hex}"
        # The lock is there before the folder: a folder without one belongs to nobody.
        self._lock = os.open(_lock_path(self.path), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
            self.path.mkdir()
        except BaseException:
            self._unlock()
            raise

    def complete(self, record: Record) -> Path:
        """Gives the draft its name. All files of ``record`` must have reached the disk.

        Raises:
            OSError: it cannot be; the draft stays one.
        """
        with (self.path / RECORD).open("w") as stream:
            stream.write(record.to_json())
            stream.flush()
            os.fsync(stream.fileno())
        _sync_folder(self.path)
        target = self._folder.path_of(self._step)
        self.path.rename(target)  # fails where the target is: a folder that is not empty
        _sync_folder(self._folder.path)
        return target

    def close(self) -> None:
        """Removes what was not completed; never raises."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._unlock()

    def _unlock(self) -> None:
        if self._lock >= 0:
            _lock_path(self.path).unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = -1


def _lock_path(draft: Path) -> Path:
    return draft.with_name(draft.name + _LOCK)


def _is_dead(draft: Path) -> bool:
    try:
        lock = os.open(_lock_path(draft), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return time.time() - os.stat(lock).st_mtime > DEAD_AFTER_S
    finally:
        os.close(lock)
    return True


def _sync_folder(path: Path) -> None:
    """A rename is on the disk only when the folder is."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # file systems that know no such thing
            raise
    finally:
        os.close(descriptor)
