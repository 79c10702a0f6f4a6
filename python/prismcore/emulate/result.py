"""What an emulation found out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prismcore.replay import ReplayResult

__all__ = ["EmulateResult", "ReleaseErrors", "SandboxResult"]


@dataclass(kw_only=True, slots=True, frozen=True)
class SandboxResult:
    """One rank that ran."""

    iteration_time_ns: Sequence[int]  #: of this rank, in the order of iterations
    peak_allocated_bytes: int | None  #: of torch's allocator; None: it did not come to its end
    peak_reserved_bytes: int | None
    late_ns: int | None = None
    """Wall clock: by how much the process was behind its host clock, in all, after the first iteration."""


@dataclass(kw_only=True, slots=True, frozen=True)
class ReleaseErrors:
    """How well the wall clock was kept: how much after its time an answer was given that was known before
    it, to one part in 32."""

    p50_ns: int
    p99_ns: int
    max_ns: int
    paced: int  #: answers known before their time
    overdue: int  #: answers known only after it, and given at once


@dataclass(kw_only=True, slots=True, frozen=True)
class EmulateResult:
    """``job`` is the whole job as it ran: sandbox ranks as they did, ghosts as recorded."""

    sandbox: Mapping[int, SandboxResult]  #: by rank, rising
    job: ReplayResult
    replay_median_iteration_time_ns: int | None
    """Of a plain replay under the same perturbations; None where a failure left it no iteration."""
    ghosts: int  #: ranks that did not run
    materialised_ghosts: int  #: of these, those that exchange bytes with a rank that ran
    messages: int  #: transfers between a rank that ran and a materialised ghost
    posts: int  #: ops posted by and answers given to the ranks that ran
    release_errors: ReleaseErrors | None = None  #: None on the virtual clock
    diverged: bool  #: a rank left its recorded program
    bootstrap_s: float  #: from the start until every sandbox rank had done its first op
    wall_time_s: float
    warnings: list[str] = field(default_factory=list)

    @property
    def median_iteration_time_ns(self) -> int | None:
        """Of the job as it ran; None where a failure left it no iteration."""
        return self.job.median_iteration_time_ns if len(self.job.iteration_time_ns) else None

    def to_json(self) -> dict[str, Any]:
        """The keys of ``prism emulate --json``."""
        errors = self.release_errors
        failure = self.job.failure
        return {
            "sandbox": {
                rank: {
                    "iteration_time_ns": list(found.iteration_time_ns),
                    "peak_allocated_bytes": found.peak_allocated_bytes,
                    "peak_reserved_bytes": found.peak_reserved_bytes,
                    "late_ns": found.late_ns,
                }
                for rank, found in self.sandbox.items()
            },
            "median_iteration_time_ns": self.median_iteration_time_ns,
            "replay_median_iteration_time_ns": self.replay_median_iteration_time_ns,
            "ghosts": self.ghosts,
            "materialised_ghosts": self.materialised_ghosts,
            "messages": self.messages,
            "posts": self.posts,
            "release_error_ns": None
            if errors is None
            else {"p50": errors.p50_ns, "p99": errors.p99_ns, "max": errors.max_ns},
            "paced_answers": None if errors is None else errors.paced,
            "overdue_answers": None if errors is None else errors.overdue,
            "diverged": self.diverged,
            "provenance": self.job.provenance,
            "bootstrap_s": self.bootstrap_s,
            "wall_time_s": self.wall_time_s,
            "warnings": self.warnings,
            **({} if failure is None else {"failure": failure.to_json()}),
        }
