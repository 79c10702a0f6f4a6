"""SPARe: training through failures by stacked, redundant shards that are re-ordered (``docs/spare.md``).

Planning: import from the modules, ``placement``, ``reorderer``, ``planner``; nothing there imports torch.
Training (``docs/guide-spare-training.md``): ``Session`` and what it is set up with, below, which import torch
and torchft once they are asked for (extra ``prismcore[spare]``).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prismcore.spare.runtime.checkpoints import Checkpoints
    from prismcore.spare.runtime.data import ShardLoader, ShardSampler
    from prismcore.spare.runtime.events import EventLog
    from prismcore.spare.runtime.options import SessionOptions, Timeouts
    from prismcore.spare.runtime.session import Session
    from prismcore.spare.runtime.work import Work

__all__ = [
    "Checkpoints",
    "EventLog",
    "Session",
    "SessionOptions",
    "ShardLoader",
    "ShardSampler",
    "Timeouts",
    "Work",
]

_HOMES = {
    "Checkpoints": "checkpoints",
    "EventLog": "events",
    "Session": "session",
    "SessionOptions": "options",
    "ShardLoader": "data",
    "ShardSampler": "data",
    "Timeouts": "options",
    "Work": "work",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"prismcore.spare.runtime.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
