"""Kernels of two runs of one program, by name and count."""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

__all__ = ["compare", "spelled"]

PRODUCT = "(matrix products)"
#: What libraries call the kernels of a product, and those that the virtual GPU records a call as.
_PRODUCTS = re.compile(r"gemm|nvjet|cutlass.*Kernel|xmma|splitK|cublas", re.IGNORECASE)
_OWN = re.compile(r"flash|fmha|attention")
_NO_KERNEL = re.compile(r"^(Memcpy|Memset)|ncclDevKernel|ncclKernel")

_library = ctypes.CDLL("libstdc++.so.6")
_demangle = _library.__cxa_demangle
_demangle.restype = ctypes.c_void_p


def spelled(name: str) -> str:
    """A mangled name as profilers spell it; another as it is."""
    if not name.startswith("_Z"):
        return name
    status = ctypes.c_int()
    found = _demangle(name.encode(), None, None, ctypes.byref(status))
    if not found:
        return name
    text = ctypes.string_at(found).decode("utf-8", "replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(found))
    return text


def _plain(name: str) -> str:
    """Without what differs by compiler and spelling: return types, spaces, anonymous namespaces."""
    text = re.sub(r"\(anonymous namespace\)::|_GLOBAL__N__\w+::|\s", "", spelled(name))
    return text.removeprefix("void")


def _counted(kernels: Mapping[str, int]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for name, count in kernels.items():
        if _NO_KERNEL.search(name):
            continue
        product = _PRODUCTS.search(name) and not _OWN.search(name)
        counts[PRODUCT if product else _plain(name)] += count
    return counts


def compare(virtual: Mapping[str, int], real: Mapping[str, int]) -> dict[str, Any]:
    """Launches of both, names that both have with the same and with another count, names of one alone.
    Products count as one name: libraries call their kernels otherwise, and may take two for one."""
    ours, theirs = _counted(virtual), _counted(real)
    both = ours.keys() & theirs.keys()
    return {
        "launches_virtual": ours.total(),
        "launches_real": theirs.total(),
        "names_alike": sum(ours[name] == theirs[name] for name in both),
        "names_of_other_count": {
            name[:100]: [ours[name], theirs[name]] for name in sorted(both) if ours[name] != theirs[name]
        },
        "names_virtual_alone": sorted(name[:100] for name in ours.keys() - theirs.keys()),
        "names_real_alone": sorted(name[:100] for name in theirs.keys() - ours.keys()),
    }
