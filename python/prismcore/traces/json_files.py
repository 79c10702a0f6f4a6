"""JSON documents of a job's ranks: plain, gzip, or several in a tar archive."""

from __future__ import annotations

import gzip
import json
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from prismcore.errors import TraceError

__all__ = ["MOST_TEXT_BYTES", "json_documents", "read_limited", "trace_files", "unpacked"]

#: A document longer than this, unpacked, is refused: it is held in memory whole.
MOST_TEXT_BYTES = 2 << 30

_NAMES = (".json", ".json.gz")
_CHUNK = 1 << 20
_DAMAGE = (OSError, EOFError, zlib.error, tarfile.TarError)


def json_documents(path: str | os.PathLike[str]) -> list[tuple[str, Any]]:
    """Names and contents of the documents in a file; in an archive of all its ``*.json``.

    Raises TraceError where it cannot be read, is cut off or damaged, is no JSON, or holds nothing.
    """
    file = os.fspath(path)
    documents = []
    try:
        if not os.path.isdir(file) and tarfile.is_tarfile(file):
            for name, member in _members(file):
                documents.append((f"{file}: {name}", _parsed(f"{file}: {name}", read_limited(member, file))))
        else:
            with open(file, "rb") as raw:
                documents.append((file, _parsed(file, read_limited(raw, file))))
    except _DAMAGE as error:
        raise TraceError(f"{file}: cannot be read: {_reason(error)}") from error
    if not documents:
        raise TraceError(f"{file}: no *.json found in this archive")
    return documents


def read_limited(raw: IO[bytes], path: str) -> bytes:
    """All bytes of a file, gzip undone; raises TraceError beyond ``MOST_TEXT_BYTES``, OSError, EOFError or
    zlib.error where it is damaged."""
    head = raw.read(2)
    raw.seek(-len(head), os.SEEK_CUR)
    source: IO[bytes] = gzip.GzipFile(fileobj=raw) if head == b"\x1f\x8b" else raw  # type: ignore[assignment]
    parts, size = [], 0
    while part := source.read(_CHUNK):
        size += len(part)
        if size > MOST_TEXT_BYTES:
            raise TraceError(f"{path}: more than {MOST_TEXT_BYTES:,} bytes unpacked, expected a smaller file")
        parts.append(part)
    return b"".join(parts)


def trace_files(paths: Sequence[Path], names: Sequence[str] = _NAMES) -> list[Path]:
    """The files that ``paths`` stand for: of a folder all with one of these endings, by name.

    Raises TraceError where a folder has none.
    """
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        found = sorted(p for p in path.iterdir() if p.is_file() and p.name.endswith(tuple(names)))
        if not found:
            raise TraceError(f"{path}: no {' or '.join('*' + name for name in names)} found in this folder")
        files += found
    return files


@contextmanager
def unpacked(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Files of these paths, those of archives in a folder that is gone afterwards.

    Raises TraceError where an archive is damaged, or holds no ``*.json``.
    """
    with tempfile.TemporaryDirectory(prefix="prism-traces-") as folder:
        files = []
        for number, path in enumerate(trace_files(paths)):
            try:
                if not tarfile.is_tarfile(path):
                    files.append(path)
                    continue
                count = len(files)
                for name, member in _members(os.fspath(path)):
                    target = Path(folder) / str(number) / Path(name).name
                    target.parent.mkdir(exist_ok=True)
                    with target.open("wb") as out:
                        while part := member.read(_CHUNK):
                            out.write(part)
                    files.append(target)
            except _DAMAGE as error:
                raise TraceError(f"{path}: cannot be read: {_reason(error)}") from error
            if len(files) == count:
                raise TraceError(f"{path}: no *.json found in this archive")
        yield files


def _members(file: str) -> Iterator[tuple[str, IO[bytes]]]:
    """Plain files of an archive that are JSON by their name, without those of macOS's own."""
    with tarfile.open(file) as archive:
        for member in archive:
            name = Path(member.name).name
            if not member.isfile() or name.startswith("._") or not name.endswith(_NAMES):
                continue
            if member.size > MOST_TEXT_BYTES:
                raise TraceError(f"{file}: {member.name} has {member.size:,} bytes, expected less")
            content = archive.extractfile(member)
            if content is not None:
                yield member.name, content


def _parsed(name: str, text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{name}: no JSON: {error}") from error


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or "it ends early"
