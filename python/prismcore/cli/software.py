"""Checks of ``prism doctor`` on what is installed: torch, the stand-ins, the driver.

Torch is never imported: its files are read instead.
"""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from prismcore.cli.machine import Check

CUDA_MAJOR = "13"
TESTED_TORCH = "2.14.1"
INSTALL_TORCH = "pip install 'prismcore[torch]'"
ALLOCATION_SYMBOL = b"reportMemoryUsageToProfiler"

# Asked in a process of its own: a broken driver must not take prism down with it.
_DRIVER_QUESTION = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
code = cuda.cuInit(0)
count = ctypes.c_int()
if code == 0:
    code = cuda.cuDeviceGetCount(ctypes.byref(count))
names = []
for i in range(count.value):
    name = ctypes.create_string_buffer(100)
    cuda.cuDeviceGetName(name, 100, i)
    names.append(name.value.decode())
print(code, ", ".join(names), sep=";")
"""


def software_checks() -> list[Check]:
    """Torch first, the GPU last."""
    return [torch(), allocation_hook(), stand_ins(), megatron(), gpu()]


def _torch_folder() -> Path | None:
    spec = importlib.util.find_spec("torch")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def torch_build(folder: Path) -> tuple[str, str | None]:
    """Version and CUDA version of the torch in `folder`, as its ``version.py`` states them."""
    stated: dict[str, object] = {}
    for node in ast.parse((folder / "version.py").read_text()).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
            stated[target.id] = value.value
    cuda = stated.get("cuda")
    return str(stated.get("__version__", "unknown")), None if cuda is None else str(cuda)


def torch() -> Check:
    folder = _torch_folder()
    if folder is None:
        return Check(
            name="torch",
            status="missing",
            found="not installed",
            advice=INSTALL_TORCH,
            needed_for=("collect", "gpu"),
        )
    version, cuda = torch_build(folder)
    if cuda is None or cuda.split(".")[0] != CUDA_MAJOR:
        return Check(
            name="torch",
            status="missing",
            found=f"{version}, built for {f'CUDA {cuda}' if cuda else 'no CUDA'}",
            advice=f"the virtual GPU stands in for CUDA {CUDA_MAJOR}: {INSTALL_TORCH}",
            needed_for=("collect",),
        )
    found = f"{version}, built for CUDA {cuda}"
    if version.split("+")[0] == TESTED_TORCH:
        return Check(name="torch", status="ok", found=found)
    return Check(name="torch", status="limited", found=found, advice=f"tested with {TESTED_TORCH} only")


def allocation_hook() -> Check:
    folder = _torch_folder()
    if folder is None:
        return Check(name="allocation hook", status="missing", found="no torch", needed_for=("collect",))
    library = folder / "lib" / "libc10.so"
    try:
        present = ALLOCATION_SYMBOL in library.read_bytes()
    except OSError as error:
        present, reason = False, f"{library.name}: {error.strerror}"
    else:
        reason = f"{library.name} has no {ALLOCATION_SYMBOL.decode()}"
    if present:
        return Check(name="allocation hook", status="ok", found="torch reports its allocations")
    return Check(
        name="allocation hook",
        status="missing",
        found=reason,
        advice=f"use torch {TESTED_TORCH}",
        needed_for=("collect",),
    )


def stand_ins() -> Check:
    try:
        from prismcore import _core
    except ImportError:
        absent = ["the C++ core, which knows where they lie"]
    else:
        paths = [Path(path) for path in _core.vgpu_library_paths()]
        absent = [path.name for path in paths if not path.is_file()]
        if not absent:
            return Check(name="virtual GPU", status="ok", found=f"{len(paths)} stand-in libraries")
    return Check(
        name="virtual GPU",
        status="missing",
        found=f"not there: {', '.join(absent)}",
        advice="reinstall prismcore (make install)",
        needed_for=("collect",),
    )


def megatron() -> Check:
    try:
        version = metadata.version("megatron-core")
    except metadata.PackageNotFoundError:
        return Check(
            name="megatron-core",
            status="limited",
            found="not installed",
            advice="only examples/megatron_gpt.py needs it: pip install 'prismcore[megatron]'",
        )
    return Check(name="megatron-core", status="ok", found=version)


def gpu() -> Check:
    none = Check(
        name="real GPU",
        status="missing",
        found="no libcuda.so.1",
        advice="not needed to collect; to measure kernels, use a machine with an NVIDIA driver",
        needed_for=("gpu",),
    )
    try:
        answer = subprocess.run(
            [sys.executable, "-c", _DRIVER_QUESTION], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        answer = None
    if answer is None or (answer.returncode != 0 and "libcuda" not in answer.stderr):
        return Check(
            name="real GPU",
            status="missing",
            found="the NVIDIA driver does not answer",
            advice="see what nvidia-smi says",
            needed_for=("gpu",),
        )
    if answer.returncode != 0:
        return none
    code, names = answer.stdout.strip().split(";", 1)
    if code != "0" or not names:
        return Check(
            name="real GPU",
            status="missing",
            found=f"the driver is there and sees no device (CUDA error {code})",
            advice=none.advice,
            needed_for=("gpu",),
        )
    return Check(name="real GPU", status="ok", found=names)
