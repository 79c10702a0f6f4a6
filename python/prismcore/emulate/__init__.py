"""Rehearse a job: sandbox ranks run the original program, ghosts answer them from the graph."""

from __future__ import annotations

from prismcore.emulate.emulate import emulate
from prismcore.emulate.options import EmulateOptions
from prismcore.emulate.result import EmulateResult, SandboxResult

__all__ = ["EmulateOptions", "EmulateResult", "SandboxResult", "emulate"]
