"""What to emulate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from prismcore.errors import EmulateError
from prismcore.replay import Perturbation

__all__ = ["EmulateOptions", "OnDivergence"]

OnDivergence = Literal["stop", "follow"]

MOST_SANDBOXES = 1024
"""Each is a process with a port of 1 MiB."""


@dataclass(kw_only=True, slots=True, frozen=True)
class EmulateOptions:
    """How to emulate a job that a graph maps.

    ``command`` is what stands after ``--`` on the command line, as torchrun takes it. Device,
    cluster, host time and number of iterations are those that the graph was collected with.

    Raises EmulateError for values that cannot be.
    """

    command: Sequence[str]
    sandbox: Sequence[int]
    """Ranks that run; all others are ghosts."""
    perturbation: Perturbation = field(default_factory=Perturbation)
    """Of ghosts and sandbox ranks alike."""
    on_divergence: OnDivergence = "stop"
    """Where a sandbox rank leaves its recorded program: ``stop`` with a DivergenceError, or ``follow``:
    it goes on, and ghosts take the sizes of what they meet it in."""
    clock: Literal["virtual", "wall"] = "virtual"
    """wall: the job's time passes as this machine's does, so that a sandbox rank that takes longer between
    its calls than the job's host would is late, and delays whoever depends on it."""
    routing: str | None = None
    """Mock routing of mixtures of experts (:mod:`prismcore.routing`); None: as collected."""
    rules: Path | None = None
    """File of rules for what ranks that do not run send (:mod:`prismcore.rules`)."""
    preload: Sequence[str] = ()
    """Modules that the warm parent imports beside those the script imports at its top level."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Set in each rank on top of the caller's environment."""
    working_directory: Path | None = None
    silence_s: float = 300.0
    """The emulation ends with an error when the ranks that run do nothing for so long."""

    def __post_init__(self) -> None:
        if not self.command or (self.command[0] == "-m" and len(self.command) < 2):
            raise EmulateError("no program: expected `-- script.py ARGS` or `-- -m module ARGS`")
        if not self.sandbox:
            raise EmulateError("no sandbox rank: expected at least one rank that runs, such as 0,8")
        if len(set(self.sandbox)) != len(self.sandbox):
            raise EmulateError("a sandbox rank is named twice")
        if len(self.sandbox) > MOST_SANDBOXES:
            raise EmulateError(
                f"{len(self.sandbox)} sandbox ranks found, expected at most {MOST_SANDBOXES}; "
                "prism collect --ranks maps many ranks one after the other"
            )
        if self.on_divergence not in get_args(OnDivergence):
            raise EmulateError(f"on_divergence {self.on_divergence!r} found, expected 'stop' or 'follow'")
        if self.clock not in ("virtual", "wall"):
            raise EmulateError(f"clock {self.clock!r} found, expected 'virtual' or 'wall'")
        if not self.silence_s > 0:
            raise EmulateError(f"silence of {self.silence_s} s found, expected more than 0")
