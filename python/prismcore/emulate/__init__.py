"""Rehearse a job: sandbox ranks run the original program, ghosts answer them from the graph."""

from __future__ import annotations

from prismcore.emulate.emulate import emulate
from prismcore.emulate.machines import Machines, joined, machines_of_torchrun
from prismcore.emulate.options import EmulateOptions
from prismcore.emulate.remote import serve
from prismcore.emulate.result import EmulateResult, ReleaseErrors, SandboxResult
from prismcore.emulate.setting import differences

__all__ = [
    "EmulateOptions",
    "EmulateResult",
    "Machines",
    "ReleaseErrors",
    "SandboxResult",
    "differences",
    "emulate",
    "joined",
    "machines_of_torchrun",
    "serve",
]
