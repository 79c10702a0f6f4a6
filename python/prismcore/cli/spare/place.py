"""``prism spare place``: which shard types each group hosts."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from prismcore.cli import output, parsing
from prismcore.cli.spare import flags
from prismcore.cli.usage import UsageError

if TYPE_CHECKING:
    from prismcore.spare.placement import Placement

KINDS = ("golomb", "spread", "domains", "random", "cyclic", "replication")
SHOWN_GROUPS = 8


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "place",
        help="which shard types each group hosts",
        description="Place N shard types on N groups, R on each, and say what it is good for.",
    )
    flags.add_groups(parser)
    flags.add_redundancy(
        parser, "types that a group hosts; default: log2 N + 0.833, rounded down, as far as golomb fits"
    )
    parser.add_argument(
        "--kind",
        choices=KINDS,
        default="golomb",
        help="golomb: shifts of a Golomb ruler, the paper's (default); spread: marks all over the "
        "circle, for large fleets; domains: hosts of a type in different racks; "
        "random, cyclic and replication (blocks) to compare",
    )
    parser.add_argument(
        "--rack-groups",
        type=parsing.whole_number(1, flags.MOST_GROUPS),
        default=None,
        metavar="K",
        help="groups that share a rack: 0 to K-1 are the first; only with --kind domains",
    )
    parser.add_argument(
        "--seed",
        type=parsing.whole_number(0, 2**63 - 1),
        default=0,
        metavar="N",
        help="of --kind random (%(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="machine output on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from prismcore.spare.closed_form import best_redundancy
    from prismcore.spare.placement import largest_redundancy

    flags.check_redundancy(args)
    redundancy = args.redundancy
    if redundancy is None:
        redundancy = best_redundancy(args.groups)
        if args.kind == "golomb":
            redundancy = min(redundancy, largest_redundancy(args.groups))
    if (args.rack_groups is not None) != (args.kind == "domains"):
        raise UsageError(
            "--kind domains needs --rack-groups K: how many groups share a rack"
            if args.rack_groups is None
            else f"--rack-groups found with --kind {args.kind}, expected it with --kind domains only"
        )
    with flags.usage_errors():
        placement = _place(args, redundancy)
    if args.json:
        output.show_json(
            {
                "groups": placement.groups,
                "redundancy": placement.redundancy,
                "kind": placement.kind,
                "stacks": placement.stacks(),
                "max_shared": placement.max_shared,
            }
        )
    else:
        _show(args, placement)
    return 0


def _place(args: argparse.Namespace, redundancy: int) -> Placement:
    from prismcore.spare import placement

    if args.kind == "domains":
        return placement.domains(redundancy, _racks(args.groups, args.rack_groups))
    if args.kind == "random":
        return placement.random(args.groups, redundancy, seed=args.seed)
    make = {
        "golomb": placement.golomb,
        "spread": placement.spread,
        "cyclic": placement.cyclic,
        "replication": placement.replication,
    }[args.kind]
    return make(args.groups, redundancy)


def _racks(groups: int, rack_groups: int) -> list[int]:
    return [group // rack_groups for group in range(groups)]


def _show(args: argparse.Namespace, placement: Placement) -> None:
    from prismcore.report.spare_place import placement_fields, stacks_table
    from prismcore.report.table import fields_table
    from prismcore.report.units import plural

    racks = None if args.rack_groups is None else _racks(args.groups, args.rack_groups)
    title = f"{placement.kind} placement of {plural(placement.groups, 'shard type')}"
    output.show(fields_table(title, placement_fields(placement, racks)))
    output.show("", stacks_table(placement, SHOWN_GROUPS))
