"""What members of a training tell each other, for tests."""

from __future__ import annotations

from dataclasses import replace

from prismcore.spare.runtime.membership import Report

TERMS = {"placement": "golomb of 4", "micro_batches": "2"}


def report(group: int, **changes: object) -> Report:
    base = Report(
        training="training",
        group=group,
        replica=f"group{group}:1",
        born_ns=1,
        store=f"host{group}:1",
        ready=100,
        entered=100,
        members=4,
        quorum=7,
        lighthouse="known",
        step=5,
        fresh=False,
        held=False,
        waited=False,
        alike=False,
        terms=TERMS,
    )
    return replace(base, **changes)  # type: ignore[arg-type]
