"""Puts the virtual GPU under torch: loads the stand-in libraries before torch is imported.

The stand-ins carry the SONAMEs and ELF versions of CUDA 13's libraries, so they fit every torch built
for CUDA 13 and no other.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import sys
from pathlib import Path

from prismcore.errors import CollectError

__all__ = ["check_torch", "library_paths", "load"]

RUNTIME = b"libcudart.so.13"
_CUDA = re.compile(r"^cuda\b.*=\s*(?:'([^']*)'|None)\s*$", re.MULTILINE)
_VERSION = re.compile(r"^__version__\s*=\s*'([^']*)'", re.MULTILINE)

_loaded: list[ctypes.CDLL] = []


def library_paths() -> list[Path]:
    """The stand-ins, in the order they must be loaded."""
    from prismcore import _core

    return [Path(path) for path in _core.vgpu_library_paths()]


def check_torch() -> str:
    """Version of the installed torch, read without importing it.

    Raises:
        CollectError: no torch, or one that is not built for CUDA 13.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise CollectError("the virtual GPU needs torch: pip install 'prismcore[torch]'")
    folder = Path(spec.origin).parent
    text = (folder / "version.py").read_text(encoding="utf-8")
    version, cuda = _VERSION.search(text), _CUDA.search(text)
    name = f"torch {version.group(1) if version else '(unknown version)'}"
    built_for = cuda.group(1) if cuda else None
    if built_for is None or built_for.split(".")[0] != "13":
        found = f"CUDA {built_for}" if built_for else "no CUDA"
        raise CollectError(
            f"{name} is built for {found}; the virtual GPU stands in for CUDA 13: "
            "install torch 2.14.1 from PyPI (prismcore[torch])"
        )
    bridge = folder / "lib" / "libc10_cuda.so"
    if not bridge.is_file() or RUNTIME not in bridge.read_bytes():
        raise CollectError(
            f"{name} does not load {RUNTIME.decode()} (its CUDA runtime is linked in or missing), so nothing "
            "can stand in for it: install torch 2.14.1 from PyPI (prismcore[torch])"
        )
    return version.group(1) if version else ""


def load() -> None:
    """Load the stand-ins into this process, for itself and the ranks that it forks. Idempotent.

    Raises:
        CollectError: torch does not fit, was imported before, or prismcore lacks its libraries.
    """
    if _loaded:
        return
    if "torch" in sys.modules:
        raise CollectError("torch is imported already; the virtual GPU must be loaded before it")
    check_torch()
    paths = library_paths()
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise CollectError(
            f"prismcore is installed without {', '.join(missing)} (expected in {paths[0].parent}): "
            "reinstall it from a wheel, or run `make build`"
        )
    os.environ.setdefault("TRITON_LIBCUDA_PATH", str(paths[0].parent))  # Triton links the driver by folder
    for path in paths:
        _loaded.append(ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL))
