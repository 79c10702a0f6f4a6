"""Findings as short phrases."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from prismcore.report.units import format_share


def provenance_words(shares: Mapping[str, float]) -> str:
    """``{"model": 0.98, "unknown": 0.02, ...}`` as ``98.00 % model, 2.00 % unknown``."""
    parts = [f"{format_share(share)} {name}" for name, share in shares.items() if share > 0]
    return ", ".join(parts) or "no device time"


def spread_words(spread: Any) -> str:
    """``{"peak": 0.001, ...}`` as ``peak 0.10 %, ...``."""
    if not isinstance(spread, Mapping) or not spread:
        return "not known"
    return ", ".join(f"{name.replace('_', ' ')} {format_share(float(v))}" for name, v in spread.items())


def short_name(kernel: str) -> str:
    """A kernel's identifier without scope and arguments; the name itself where it cannot be read."""
    from prismcore import _core

    return _core.kernel_base(kernel).decode("utf-8", "replace") or kernel


def shorten_command(command: Sequence[str], width: int = 90) -> str:
    """A command line that fits a table."""
    text = shlex.join(str(part) for part in command)
    return text if len(text) <= width else text[: width - 3] + "..."
