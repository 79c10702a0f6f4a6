"""Files and folders that appear under their names when they are complete, or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from prismcore import outputs
from prismcore.cli import output
from prismcore.errors import PrismError

__all__ = ["check_folder", "whole_file", "whole_folder"]


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """:func:`prismcore.outputs.whole_file`, which SIGTERM does not leave half written."""
    with output.terminated_as_interrupt(), outputs.whole_file(path) as out:
        yield out


def check_folder(path: Path) -> None:
    """Raises PrismError when `path` cannot become a folder; better now than after the work."""
    target = Path(os.path.realpath(path))
    if path.is_dir():
        if any(path.iterdir()):
            raise _holds_files(path)
        mounted = os.path.ismount(target)
        if mounted or target == Path.cwd():  # neither can be replaced under those who use it
            what = "a place where a file system is mounted" if mounted else "the current folder"
            raise PrismError(
                f"{path}: is {what}, expected the name of a folder to make, such as {path / 'out'}"
            )
    elif path.exists() or target.is_symlink():
        raise PrismError(f"{path}: is a file, expected the name of a folder to write")
    if not target.parent.is_dir():
        folder = target.parent if path.is_symlink() else path.parent
        raise PrismError(f"{path}: its folder does not exist; create it first: mkdir -p {folder}")
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}."):
            pass
    except OSError as error:
        raise PrismError(f"{path}: cannot be written: {error.strerror}") from error


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which gets its name when it is complete; an empty one of that name is replaced.

    A link is followed: what it leads to is the folder."""
    target = Path(os.path.realpath(path))
    with output.terminated_as_interrupt():
        try:
            name = tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.")
        except OSError as error:
            raise PrismError(f"{path}: cannot be written: {error.strerror}") from error
        try:
            yield Path(name)
            os.chmod(name, 0o777 & ~outputs.umask())
            os.replace(name, target)
        except OSError as error:
            shutil.rmtree(name, ignore_errors=True)
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # another command was faster
                raise _holds_files(path) from error
            raise PrismError(f"{path}: cannot be written: {error.strerror}") from error
        except BaseException:
            shutil.rmtree(name, ignore_errors=True)
            raise


def _holds_files(path: Path) -> PrismError:
    return PrismError(f"{path}: holds files already, expected the name of a new or empty folder")
