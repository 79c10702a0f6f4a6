"""What a group says of itself: the reports of its ranks in one.

What it rests on. A rank enters a barrier across groups only after all ranks of its group have come to it, and
does nothing behind it before all have passed it, or one has failed. So where a rank has committed a step,
all ranks of all groups hold it, and where a rank is ready, all have entered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from prismcore.errors import MembershipError
from prismcore.spare.runtime.membership import Report

__all__ = ["NO_STATE", "merge"]

NO_STATE = -1
"""In place of a step: what the ranks have does not belong together."""


def merge(reports: Sequence[Report], received: Sequence[int]) -> Report:
    """
    Args:
        reports: by position.
        received: the epoch in which each rank was given its state by another group; 0: never.

    Raises:
        MembershipError: ranks are in different steps.
    """
    first = reports[0]
    if len(set(received)) > 1:  # the group was coming back, and that broke off
        return replace(first, ready=0, entered=0, members=0, step=NO_STATE, fresh=False, held=False)
    step = max(report.step for report in reports)
    behind = [report for report in reports if report.step < step]
    if any(report.step < step - 1 or not report.held for report in behind):
        raise MembershipError(
            f"ranks of group {first.group} are in steps {[report.step for report in reports]}, by position; "
            "expected one step: ranks of a group begin from the same checkpoint"
        )
    newest = max(reports, key=lambda report: report.ready)
    return replace(
        first,
        ready=newest.ready,
        entered=min(report.entered for report in reports),
        members=newest.members,
        quorum=newest.quorum,
        step=step,
        fresh=all(report.fresh and report.step == step for report in reports),
        held=all(report.held and report.step == step for report in reports),
        waited=any(report.waited for report in reports),
    )
