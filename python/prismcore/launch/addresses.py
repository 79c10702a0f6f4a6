"""How many addresses a process may use."""

from __future__ import annotations

import resource

from prismcore.errors import CollectError

__all__ = ["allow_addresses"]

_LEAST_BYTES = 128 << 30
"""64 GiB for the least memory of a virtual GPU (``csrc/vgpu/device/memory.h``), the rest for torch."""


def allow_addresses() -> None:
    """Lifts the limit of this process on addresses (``ulimit -v``) as far as the system allows it.

    Raises CollectError where that leaves no room for the memory of a virtual GPU.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < _LEAST_BYTES:
        raise CollectError(
            f"this host allows a process {hard >> 20:,} MiB of addresses (ulimit -v), expected at least "
            f"{_LEAST_BYTES >> 30} GiB: a virtual GPU takes addresses for its memory, though none of this "
            "host's; lift the limit (ulimit -v unlimited), also that of a batch system"
        )
