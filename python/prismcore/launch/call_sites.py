"""Where in the program each communication launch came from, out of torch's flight recorder."""

from __future__ import annotations

import os
import pickle
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

__all__ = ["call_site", "flight_records", "here", "launches"]

# Innermost first: site-packages lies in the standard library's folder. As named and as resolved.
_INSTALLED = tuple(
    resolve(sysconfig.get_path(key)) + os.sep
    for key in ("purelib", "platlib", "stdlib", "platstdlib")
    for resolve in (str, os.path.realpath)
)


def flight_records() -> list[dict[str, Any]]:
    """What torch's flight recorder holds, with the Python frames of each entry.

    Raises RuntimeError where there is no flight recorder.
    """
    import torch

    with _without_compiler(torch):
        dump = torch._C._distributed_c10d._dump_nccl_trace(
            includeCollectives=True, includeStackTraces=True, onlyActive=False
        )
    entries: list[dict[str, Any]] = pickle.loads(dump).get("entries", [])
    return entries


@contextmanager
def _without_compiler(torch: ModuleType) -> Iterator[None]:
    """To name frames of compiled code torch asks ``torch._inductor.codecache`` (``torch/csrc/profiler``,
    2.14), and by asking imports it: 900 modules, more than a second. Where nothing has imported it,
    nothing has been compiled."""
    name = "_inductor"
    if f"{torch.__name__}.{name}" in sys.modules or name in vars(torch):
        yield
        return
    setattr(torch, name, ModuleType(name))
    try:
        yield
    finally:
        delattr(torch, name)


def launches(entries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The entries that stand for one launch each, in order.

    A batch of sends and receives is one entry a message and then one ``coalesced``: the messages
    of a batch share the batch's group and point-to-point number.
    """
    out: list[Mapping[str, Any]] = []
    for entry in entries:
        if entry["profiling_name"].endswith(":coalesced"):
            batch = (entry["pg_id"], entry["p2p_seq_id"])
            while out and out[-1]["is_p2p"] and (out[-1]["pg_id"], out[-1]["p2p_seq_id"]) == batch:
                out.pop()
        out.append(entry)
    return out


def call_site(frames: Sequence[Mapping[str, Any]], folder: str) -> str:
    """``file:line function`` of the innermost frame outside torch and, where that lies in a
    library, of the innermost frame of the program, joined by `` < ``.
    """
    library = ""
    for frame in frames:
        path = frame["filename"]
        if path.startswith("<") or f"{os.sep}prismcore{os.sep}launch{os.sep}" in path:
            continue
        root = next((root for root in _INSTALLED if path.startswith(root)), None)
        if root is None:
            own = _text(frame, os.path.relpath(path, folder) if path.startswith(folder) else path)
            return f"{library} < {own}" if library else own
        name = path[len(root) :]
        if not library and not name.startswith(("torch" + os.sep, "contextlib", "typing_extensions")):
            library = _text(frame, name)
    return library


def here(folder: str) -> str:
    """The call site of what runs now."""
    frames = []
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        frames.append({"filename": code.co_filename, "line": frame.f_lineno, "name": code.co_name})
        frame = frame.f_back  # type: ignore[assignment]
    return call_site(frames, folder)


def _text(frame: Mapping[str, Any], path: str) -> str:
    return f"{path}:{frame['line']} {frame['name']}"
