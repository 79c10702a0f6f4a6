"""Replays as dumps of torch's flight recorder, for ``torch.distributed.flight_recorder.fr_trace``."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from prismcore.exports.flight_entries import rank_dump
from prismcore.exports.rank_times import replays
from prismcore.graph import Graph
from prismcore.graph.origin import MARK, export_mark
from prismcore.replay import FailureReport, Perturbation

__all__ = ["FlightRecorderSize", "write_flight_recorder"]

VERSION = "2.10"
PREFIX = "rank_"


@dataclass(kw_only=True, slots=True, frozen=True)
class FlightRecorderSize:
    """What was written."""

    ranks: int
    entries: int
    unfinished: int  #: entries that are not completed
    file_bytes: int
    failure: FailureReport | None  #: why there are such


def write_flight_recorder(
    folder: Path, graph: Graph, ranks: Sequence[int], *, perturbation: Perturbation | None = None
) -> FlightRecorderSize:
    """``rank_N`` of each of `ranks` into a folder that is there.

    A job that cannot go on (deadlock, mismatch, ranks that fail) is dumped as it stands then. Collectives
    stand under their communicator; messages under a group of the two ranks, one for each direction and tag,
    since fr_trace matches an entry with those of all members of its group. Raises GraphError, OSError.
    """
    entries = unfinished = size = 0
    failure = None
    communicator = lru_cache(1024)(graph.communicator)
    for result, some in replays(graph, ranks, perturbation=perturbation, keep_stuck=True):
        failure = result.failure
        failed = failure.failed if failure else {}
        for times in some:
            rank = times.rank.rank
            sites = graph.program_call_sites(times.rank.program)
            dump = rank_dump(times, communicator, sites, failed.get(rank))
            path = folder / f"{PREFIX}{rank}"
            with path.open("wb") as out:
                pickle.dump(
                    {
                        "version": VERSION,
                        MARK: export_mark(graph),
                        "comm_lib_version": "",
                        "pg_config": dump.pg_config,
                        "pg_status": dump.pg_status,
                        "entries": dump.entries,
                    },
                    out,
                    protocol=2,
                )
            entries += len(dump.entries)
            unfinished += dump.unfinished
            size += path.stat().st_size
    return FlightRecorderSize(
        ranks=len(ranks), entries=entries, unfinished=unfinished, file_bytes=size, failure=failure
    )
