"""Replay of execution graphs in virtual time: ``prismcore.replay(graph)``.

The package is callable, so that its name serves for the function and for what goes with it.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from prismcore.replay.clock_curve import read_clock_curve
from prismcore.replay.failure import FailureReport, Wait, WaitingRank
from prismcore.replay.perturbation import Jitter, Perturbation, RankFailure, SlowLink, SlowRank
from prismcore.replay.replay import MemoryCurve, memory_curve, recorded_eager_bytes, replay
from prismcore.replay.result import SPLIT_KEYS, ReplayResult, Timeline, TimeSplit

__all__ = [
    "SPLIT_KEYS",
    "FailureReport",
    "Jitter",
    "MemoryCurve",
    "Perturbation",
    "RankFailure",
    "ReplayResult",
    "SlowLink",
    "SlowRank",
    "TimeSplit",
    "Timeline",
    "Wait",
    "WaitingRank",
    "memory_curve",
    "read_clock_curve",
    "recorded_eager_bytes",
    "replay",
]


class _Callable(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> ReplayResult:
        return replay(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
