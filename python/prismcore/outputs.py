"""Files that are written: where they land, what they must not replace, and whole or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from prismcore.errors import PrismError

__all__ = ["check_file", "file_target", "umask", "whole_file", "write_whole"]


def file_target(path: str | os.PathLike[str]) -> Path:
    """The file that a write to `path` makes or replaces: what it links to, where it is a link.

    Raises PrismError where that is a folder, a device, a pipe or a socket, or links lead in a circle.
    """
    given = Path(path)
    target = Path(os.path.realpath(given)) if given.is_symlink() else given
    if target.is_symlink():
        raise PrismError(f"{given}: is a link that leads in a circle, expected the name of a file to write")
    try:
        mode = given.stat().st_mode
    except FileNotFoundError:
        return target
    if stat.S_ISDIR(mode):
        raise PrismError(f"{given}: is a folder, expected the name of a file to write")
    if not stat.S_ISREG(mode):
        raise PrismError(f"{given}: is a device, a pipe or a socket, expected the name of a file to write")
    return target


def check_file(path: Path, *, sources: Iterable[Path] = ()) -> None:
    """Raises PrismError when `path` cannot become a file; better now than after the work.

    ``sources``: what is read, which must not be written over.
    """
    target = file_target(path)
    for source in sources:
        if path.exists() and source.exists() and path.samefile(source):
            raise PrismError(f"{path}: is also what would be read, expected another name for the output")
    folder = target.resolve().parent
    if not folder.is_dir():
        raise PrismError(f"{path}: its folder does not exist; create it first: mkdir -p {target.parent}")
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{target.name}."):
            pass
    except OSError as error:
        raise PrismError(f"{path}: cannot be written: {error.strerror}") from error


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file that appears under its name when it is complete, or not at all.

    Raises PrismError where :func:`file_target` does or it cannot be written.
    """
    pending = _Pending(path)
    try:
        with pending.written():
            yield pending.out
        pending.commit()
    finally:
        pending.discard()


def write_whole(contents: Mapping[Path, bytes]) -> None:
    """Files that belong together: none takes its name before all are on the disk.

    Raises PrismError, which names the file, as :func:`whole_file` does.
    """
    pending: list[_Pending] = []
    try:
        for path, content in contents.items():
            pending.append(_Pending(path))
            with pending[-1].written():
                pending[-1].out.write(content)
        for file in pending:
            file.commit()
    finally:
        for file in pending:
            file.discard()


class _Pending:
    """A file beside its place."""

    def __init__(self, path: Path) -> None:
        self.path, self.target = path, file_target(path)
        self.done = False
        try:
            handle, self.name = tempfile.mkstemp(
                dir=self.target.resolve().parent, prefix=f".{self.target.name}."
            )
        except OSError as error:
            raise self._failed(error) from error
        self.out: BinaryIO = os.fdopen(handle, "wb")

    @contextmanager
    def written(self) -> Iterator[None]:
        """Closes what was written in it."""
        try:
            with self.out:
                yield
        except OSError as error:
            raise self._failed(error) from error

    def commit(self) -> None:
        try:
            os.chmod(self.name, 0o666 & ~umask())
            os.replace(self.name, self.target)
        except OSError as error:
            raise self._failed(error) from error
        self.done = True

    def discard(self) -> None:
        if not self.done:
            os.unlink(self.name)

    def _failed(self, error: OSError) -> PrismError:
        return PrismError(f"{self.path}: cannot be written: {error.strerror}")


def umask() -> int:
    """That of this process."""
    found = os.umask(0)
    os.umask(found)
    return found
