"""Collection of a job, from its command to its graph."""

from __future__ import annotations

from prismcore.collect.options import CollectOptions, CollectResult, ProgressCallback
from prismcore.errors import CollectError

__all__ = ["collect"]


def collect(options: CollectOptions, progress: ProgressCallback | None = None) -> CollectResult:
    """Runs ranks of ``options.command`` on the virtual GPU and maps every rank of the world.

    Raises :class:`RankFailedError` (a rank ended with an error), :class:`OutOfMemoryError` (a rank
    does not fit), :class:`ProfileError` (unknown device or cluster), :class:`CollectError` (the job
    cannot be collected as asked). An error carries ``partial``, the graph of the ranks so far,
    where ``options.keep_partial`` asks for it and there is one.
    """
    raise CollectError("collection is not built into this version")
