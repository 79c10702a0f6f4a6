"""Files and folders that appear under their names when they are complete, or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from prismcore.cli import output
from prismcore.errors import PrismError

__all__ = ["check_folder", "whole_file", "whole_folder"]


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file that appears under its name when it is complete, or not at all."""
    with output.terminated_as_interrupt():
        handle, name = tempfile.mkstemp(dir=path.resolve().parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as out:
                yield out
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, path)
        except OSError as error:
            os.unlink(name)
            raise PrismError(f"{path}: cannot be written: {error.strerror}") from error
        except BaseException:
            os.unlink(name)
            raise


def check_folder(path: Path) -> None:
    """Raises PrismError when `path` cannot become a folder; better now than after the work."""
    if path.is_dir():
        if any(path.iterdir()):
            raise PrismError(f"{path}: holds files already, expected the name of a new or empty folder")
    elif path.exists() or path.is_symlink():
        raise PrismError(f"{path}: is a file, expected the name of a folder to write")
    parent = path.resolve().parent
    if not parent.is_dir():
        raise PrismError(f"{path}: its folder does not exist; create it first: mkdir -p {path.parent}")
    try:
        with tempfile.TemporaryDirectory(dir=parent, prefix=f".{path.name}."):
            pass
    except OSError as error:
        raise PrismError(f"{path}: cannot be written: {error.strerror}") from error


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which gets its name when it is complete; an empty one of that name is replaced."""
    with output.terminated_as_interrupt():
        try:
            name = tempfile.mkdtemp(dir=path.resolve().parent, prefix=f".{path.name}.")
        except OSError as error:
            raise PrismError(f"{path}: cannot be written: {error.strerror}") from error
        try:
            yield Path(name)
            os.chmod(name, 0o777 & ~_umask())
            os.replace(name, path)
        except OSError as error:
            shutil.rmtree(name, ignore_errors=True)
            raise PrismError(f"{path}: cannot be written: {error.strerror}") from error
        except BaseException:
            shutil.rmtree(name, ignore_errors=True)
            raise


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask
