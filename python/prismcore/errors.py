"""Expected failures, one class each; the C++ core raises the same names.

Every message says what was found, what was expected, and what to do next. ``exit_code`` is what
the command line ends with (``docs/architecture.md``, command line).
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "CheckpointError",
    "CollectError",
    "CuptiError",
    "DataError",
    "DeadlockError",
    "DivergenceError",
    "DriverError",
    "EmulateError",
    "GraphError",
    "GraphFormatError",
    "MeasureError",
    "MembershipError",
    "MismatchError",
    "NcclError",
    "OutOfMemoryError",
    "PrismError",
    "ProfileError",
    "RankFailedError",
    "RoutingError",
    "RuleError",
    "SpareError",
    "StoppedError",
    "TraceError",
    "WipeOutError",
]


class PrismError(Exception):
    """Base of all expected failures of prismcore."""

    exit_code = 1
    partial: Any = None
    """The graph of what was collected before the failure, where that was asked for, else None. (Not
    typed as one: graphs stand above errors.)"""


class GraphFormatError(PrismError):
    """A ``.prism`` file is damaged, truncated, or of a newer version."""


class GraphError(PrismError):
    """A graph is built, merged or asked in a way its contents do not allow."""


class ProfileError(PrismError):
    """A device or cluster profile, or a clock curve, is unknown, lacks a figure or holds one that cannot
    be."""


class DeadlockError(PrismError):
    """Replay cannot go on: ranks wait for others that never arrive."""

    exit_code = 3


class MismatchError(PrismError):
    """Members of a communicator disagree about the op they meet in."""

    exit_code = 3
    rank: int = -1  #: one of them, the receiver of a message; -1: not known
    op: int = -1  #: number of its op in its program


class DivergenceError(PrismError):
    """A rank that runs does something else than the graph recorded of it."""

    exit_code = 3
    rank: int = -1  #: that left its recorded program; -1: not known
    op: int = -1  #: number of the first op that differs, in the program of the rank, queries left out


class StoppedError(PrismError):
    """Ranks that were made to fail stop others; ``report`` says who waits where
    (``prismcore.replay.FailureReport``)."""

    exit_code = 3
    report: Any = None
    result: Any = None
    """Of an emulation (``prismcore.emulate.EmulateResult``): what came until then."""


class CollectError(PrismError):
    """A job cannot be collected as asked (sizes, script, environment)."""


class EmulateError(PrismError):
    """A job cannot be emulated as asked (ranks, graph, script)."""


class RankFailedError(CollectError):
    """A rank's program ended with an error; the message holds its last lines of output."""


class OutOfMemoryError(PrismError):
    """A rank does not fit into the device's memory."""

    exit_code = 4


class MeasureError(PrismError):
    """A device cannot be measured as asked (no such device, taken, no memory, no torch)."""


class CuptiError(PrismError):
    """CUPTI, which records a real GPU, is not there, is too old, or refuses."""


class TraceError(PrismError):
    """A trace cannot be read, is damaged, holds what cannot be, or does not fit together."""


class NcclError(PrismError):
    """The real NCCL is not there, or is not one that the NCCL door can call."""


class DriverError(PrismError):
    """A call of the CUDA driver failed, or the driver has no such call; the message names the call, CUDA's
    name and number of the error, the rank and the op."""

    rank: int = -1  #: in the world; -1: none
    op: int = -1  #: number in the program of the rank; -1: none


class RoutingError(PrismError):
    """A routing rule is unknown, or asks for what a job does not have (an expert, a rank)."""


class RuleError(PrismError):
    """A file of rules for what ghosts send cannot be used, or a rule gave what cannot be received."""


class SpareError(PrismError):
    """A SPARe placement, plan or life-time is asked for with values that cannot be."""


class DataError(SpareError):
    """The data set of a training failed on a sample; the message names the work it belongs to."""


class CheckpointError(SpareError):
    """A checkpoint cannot be written, is not there, is damaged, or is not of the state it is asked for."""


class MembershipError(SpareError):
    """The groups of a training could not agree on who goes on, or one of them has no place in it."""


class WipeOutError(SpareError):
    """A shard type has no host left: the training restarts from its checkpoint."""
