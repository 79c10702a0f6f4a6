"""The files of a job's traces: named one by one, all of a folder, or all of a tar archive."""

from __future__ import annotations

import os
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import IO, TypeVar

from prismcore.errors import TraceError
from prismcore.traces.json_files import MOST_TEXT_BYTES
from prismcore.traces.trace_formats import MANY, OtherFormatError, format_of, other_format

__all__ = ["TraceFile", "files_in", "is_archive", "read_trace_files"]

_JSON = (".json", ".json.gz")
_ENDINGS = {
    "kineto": _JSON,
    "pytorch-et": _JSON,
    "chakra": (".et", ".et.gz", *_JSON),
    "flight-recorder": ("",),  # torch's own names end in the rank
    "straggler": (),  # one file, never a folder
}
"""Of the names of files that a folder or an archive stands for, by format."""
_CHUNK = 1 << 20
_NAMED = 8  # files in a warning
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceFile:
    """One file of a job."""

    name: str  #: for messages; of a file in an archive ``ARCHIVE: MEMBER``
    path: Path  #: where it can be read until the next one comes
    inside: str = ""  #: ``folder`` or ``archive`` that it was found in; empty: asked for by its name


def read_trace_files(
    paths: Sequence[Path], format: str, read: Callable[[TraceFile], _T | None]
) -> tuple[list[_T], list[str]]:
    """What ``read`` makes of each file, and warnings: files in a folder or an archive that are of another
    format are left out. ``read`` raises OtherFormatError for those that their first bytes do not tell, and
    gives None for what is no trace but belongs to the job.

    ``format``: as ``prism import`` names it.

    Raises TraceError where a file that was asked for is of another format, an archive is damaged, a folder
    or an archive has no file of such a name, or none is of the format.
    """
    read_ones: list[_T] = []
    others: dict[str, list[str]] = {}
    refused: OtherFormatError | None = None
    with closing(_files(paths, format)) as files:
        for file in files:
            try:
                told = format_of(file.path)
                if told not in (None, format):
                    raise other_format(file.name, str(told), format)
                if (one := read(file)) is not None:
                    read_ones.append(one)
            except OtherFormatError as error:
                if not file.inside:
                    raise
                refused = refused or error
                others.setdefault(file.inside, []).append(Path(file.name).name)
    if refused is not None and not read_ones:
        raise TraceError(str(refused))
    warnings = []
    for inside, names in others.items():
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        named = ", ".join(names[:_NAMED])
        warnings.append(f"{named}{more} in the {inside} are no {MANY[format]}, and are left out")
    return read_ones, warnings


def files_in(folder: Path, format: str) -> list[Path]:
    """The files that a folder stands for, by name."""
    return sorted(p for p in folder.iterdir() if p.is_file() and p.name.endswith(_ENDINGS[format]))


def is_archive(path: Path) -> bool:
    """Whether this is a tar archive, compressed or not."""
    try:
        return path.is_file() and tarfile.is_tarfile(path)
    except (OSError, EOFError, zlib.error, tarfile.TarError):
        return False


def _files(paths: Sequence[Path], format: str) -> Generator[TraceFile, None, None]:
    wanted = " or ".join("*" + ending for ending in _ENDINGS[format])
    for path in paths:
        if path.is_dir():
            inside = files_in(path, format)
            if not inside:
                raise TraceError(f"{path}: no {wanted} found in this folder")
            for one in inside:
                yield TraceFile(name=os.fspath(one), path=one, inside="folder")
        elif path.exists() and not path.is_file():  # opening a pipe may wait for ever
            raise TraceError(f"{path}: no regular file found, expected a trace")
        elif is_archive(path):
            count = 0
            for count, file in enumerate(_members(path, format), start=1):  # noqa: B007
                yield file
            if not count:
                raise TraceError(f"{path}: no {wanted} found in this archive")
        else:
            yield TraceFile(name=os.fspath(path), path=path)


def _members(path: Path, format: str) -> Iterator[TraceFile]:
    """Plain files of an archive, without those of macOS's own, one at a time under a name of ours."""
    with _temporary_folder() as folder:
        copy = Path(folder, "trace")
        members = _opened(path, format)
        while True:
            try:
                name, content = next(members)
                with copy.open("wb", buffering=0) as out:
                    while part := content.read(_CHUNK):
                        _write(out, part)
            except StopIteration:
                return
            except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
                reason = getattr(error, "strerror", None) or str(error) or "it ends early"
                raise TraceError(f"{path}: cannot be read: {reason}") from error
            yield TraceFile(name=f"{path}: {name}", path=copy, inside="archive")


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="prism-traces-")
    except OSError as error:
        raise _no_room(error) from error


def _write(out: FileIO, part: bytes) -> None:
    left = memoryview(part)
    try:
        while left:
            left = left[out.write(left) :]
    except OSError as error:
        raise _no_room(error) from error


def _no_room(error: OSError) -> TraceError:
    where = tempfile.tempdir or "none was found"
    return TraceError(
        f"no trace can be unpacked into the folder for temporary files ({where}): {error.strerror}; name "
        "another one (TMPDIR), or unpack the archive and import the folder"
    )


def _opened(path: Path, format: str) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(path) as archive:
        for member in archive:
            name = Path(member.name).name
            if not member.isfile() or name.startswith("._") or not name.endswith(_ENDINGS[format]):
                continue
            if member.size > MOST_TEXT_BYTES:
                raise TraceError(f"{path}: {member.name} has {member.size:,} bytes, expected less")
            content = archive.extractfile(member)
            if content is not None:
                yield member.name, content
