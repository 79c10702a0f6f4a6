"""Tables of a SPARe placement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from prismcore.report.table import rows_table
from prismcore.report.units import plural

if TYPE_CHECKING:
    from prismcore.spare.placement import Placement

MOST_NUMBERS = 12


def placement_fields(placement: Placement, domain_of_group: Sequence[int] | None) -> list[tuple[str, object]]:
    """What a placement is good for, in the terms of the closed forms where they hold."""
    from prismcore.spare import closed_form
    from prismcore.spare.placement import golomb_ruler, groups_needed, largest_redundancy

    groups, redundancy, shared = placement.groups, placement.redundancy, placement.max_shared
    fields: list[tuple[str, object]] = [
        ("groups", groups),
        ("redundancy", f"{redundancy}: a group hosts {plural(redundancy, 'type')}, a type has as many hosts"),
        ("two groups share", f"at most {plural(shared, 'type')}"),
    ]
    if placement.kind == "golomb":
        ruler = golomb_ruler(redundancy)
        fields += [
            ("ruler", f"{_some(ruler)}, shifted by one from group to group"),
            ("fits from", f"{plural(groups_needed(redundancy), 'group')} on"),
            ("largest redundancy", f"{largest_redundancy(groups)} on {plural(groups, 'group')}"),
        ]
    if domain_of_group is not None:
        most = placement.max_hosts_in_domain(domain_of_group)
        racks = len(set(domain_of_group))
        fields.append(("hosts in one rack", f"at most {most} of a type, {plural(racks, 'rack')}"))
    if shared <= 1:
        endured = closed_form.endured_failures(groups, redundancy)
        fields.append(("endured failures", f"{endured:,.1f} on average until wipe-out (closed form)"))
    elif placement.kind == "replication":
        endured = closed_form.replication_endured_failures(groups, redundancy)
        fields.append(("endured failures", f"{endured:,.1f} on average until wipe-out (closed form)"))
    else:
        fields.append(("endured failures", "no closed form: groups share more than one type"))
    return fields


def stacks_table(placement: Placement, count: int) -> Table:
    """The stacks of the first groups, types in the order in which they are computed."""
    stacks = placement.stacks()
    shown = min(count, placement.groups)
    title = f"stacks ({shown} of {placement.groups:,} groups)" if shown < placement.groups else "stacks"
    rows = [(group, _some(stacks[group].tolist())) for group in range(shown)]
    return rows_table(title, ("group", "types"), rows)


def _some(numbers: Sequence[int]) -> str:
    """The first of many numbers, and the last."""
    if len(numbers) <= MOST_NUMBERS:
        return ", ".join(map(str, numbers))
    return ", ".join(map(str, numbers[: MOST_NUMBERS - 1])) + f", ..., {numbers[-1]}"
