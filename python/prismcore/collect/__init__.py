"""Map a job: run one rank of each class on the virtual GPU and put all ranks into one graph."""

from __future__ import annotations

from prismcore.collect.collect import collect
from prismcore.collect.options import CollectInterrupted, CollectOptions, CollectProgress, CollectResult

__all__ = ["CollectInterrupted", "CollectOptions", "CollectProgress", "CollectResult", "collect"]
