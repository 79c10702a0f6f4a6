"""``prism spare simulate``: whole trainings under failures."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING

from prismcore.cli import output, parsing
from prismcore.cli.spare import flags
from prismcore.cli.usage import UsageError

if TYPE_CHECKING:
    from prismcore.cli.spare.flags import Fleet
    from prismcore.spare.life import LifeOptions, LifeResult

POLICIES = ("spare", "replication", "checkpoint-only")
REPLICATION_REDUNDANCY = 3  # the paper's best


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "simulate",
        help="time to train, availability and more of simulated trainings",
        description="Simulate whole trainings, step by step and failure by failure. Defaults are the "
        "setting of the SPARe paper.",
    )
    parser.add_argument(
        "--policy",
        choices=POLICIES,
        default="spare",
        help="spare (default); replication: R groups compute the same R shards; checkpoint-only: any failure "
        "restarts all",
    )
    flags.add_redundancy(
        parser,
        "shards that a group hosts; default: log2 N + 0.833 rounded down, if it fits; 3 for replication",
    )
    parser.add_argument(
        "--micro-batches",
        type=parsing.whole_number(1, flags.MOST_MICRO_BATCHES),
        default=1,
        metavar="M",
        help="parts of a shard that move one by one; 1 is the paper (%(default)s)",
    )
    flags.add_interval(parser)
    flags.add_fleet(parser)
    flags.add_simulation(parser)
    parser.add_argument("--json", action="store_true", help="machine output on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from prismcore.spare.planner import simulate_in_rounds

    flags.check_redundancy(args)
    if args.policy != "spare" and args.micro_batches != 1:
        raise UsageError(
            f"--micro-batches {args.micro_batches} found with --policy {args.policy}, expected it with spare "
            "only"
        )
    if args.policy == "checkpoint-only" and args.redundancy not in (None, 1):
        raise UsageError(f"--redundancy {args.redundancy} found with --policy checkpoint-only, expected none")
    fleet = flags.fleet_of(args)
    life = dataclasses.replace(
        fleet.life,
        policy=args.policy,
        redundancy=REPLICATION_REDUNDANCY
        if args.policy == "replication" and args.redundancy is None
        else args.redundancy,
        micro_batches=args.micro_batches,
        checkpoint_steps=args.checkpoint_steps,
    )
    with flags.usage_errors(), output.progress_bar() as step:
        result = simulate_in_rounds(life, step, "simulating trainings")
    if args.json:
        output.show_json({**result.to_dict(), "notes": fleet.notes})
    else:
        _show(fleet, life, result)
    return 0


def _show(fleet: Fleet, life: LifeOptions, result: LifeResult) -> None:
    from prismcore.report.spare_life import fleet_fields, life_fields, split_table
    from prismcore.report.table import fields_table

    output.show(fields_table("fleet", fleet_fields(life, fleet.gpus)), "")
    output.show(fields_table("result", life_fields(result)), "", split_table(result))
    flags.show_notes(fleet)
