"""``prism spare plan``: redundancy, granularity and checkpoint interval for a fleet."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from prismcore.cli import output, parsing
from prismcore.cli.graphs import check_output
from prismcore.cli.spare import flags
from prismcore.cli.written import whole_file
from prismcore.errors import SpareError

if TYPE_CHECKING:
    from prismcore.cli.spare.flags import Fleet
    from prismcore.spare.planner import FleetPlan


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "plan",
        help="redundancy, granularity and checkpoint interval for a fleet",
        description="Find the redundancy, granularity and checkpoint interval with the least time to train: "
        "closed forms rank them, simulation decides. Defaults are the setting of the SPARe paper.",
    )
    flags.add_fleet(parser)
    parser.add_argument(
        "--micro-batches",
        type=parsing.whole_number(1, flags.MOST_MICRO_BATCHES),
        default=None,
        metavar="M",
        help="micro-batches of a shard: its divisors are tried as granularities; default: 1, 2, 4, 8, 16",
    )
    flags.add_redundancy(parser, "only this one; default: every one that the placement allows")
    flags.add_interval(parser)
    flags.add_simulation(parser)
    parser.add_argument(
        "--plot",
        type=plot_file,
        default=None,
        metavar="FILE",
        help="draw time to train, availability and computation over redundancy: .png, .svg or .pdf; "
        "simulates every redundancy",
    )
    parser.add_argument("--json", action="store_true", help="machine output on stdout")
    parser.set_defaults(run=run)


def plot_file(text: str) -> Path:
    """A file whose suffix names a format that can be drawn."""
    from prismcore.spare.plot import check_suffix

    try:
        check_suffix(Path(text))
    except SpareError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return Path(text)


def run(args: argparse.Namespace) -> int:
    from prismcore.spare.planner import GRANULARITIES, PlanOptions, divisors, plan
    from prismcore.spare.plot import check_plot

    flags.check_redundancy(args)
    if args.plot is not None:
        check_plot(args.plot)
        check_output(args.plot)
    fleet = flags.fleet_of(args)
    options = PlanOptions(
        life=dataclasses.replace(fleet.life, checkpoint_steps=args.checkpoint_steps),
        granularities=GRANULARITIES if args.micro_batches is None else divisors(args.micro_batches),
        redundancy=args.redundancy,
        whole_curves=args.plot is not None,
    )
    with flags.usage_errors(), output.progress_bar() as step:
        found = plan(options, step)
    if args.plot is not None:
        _draw(args.plot, fleet, found)
    if args.json:
        from prismcore.report.spare_plan import plan_json

        output.show_json({**plan_json(found, fleet.gpus), "notes": fleet.notes})
    else:
        _show(args, fleet, found)
    return 0


def _show(args: argparse.Namespace, fleet: Fleet, found: FleetPlan) -> None:
    from prismcore.report.spare_life import fleet_fields
    from prismcore.report.spare_plan import legend, plan_fields, plan_table
    from prismcore.report.table import fields_table

    output.show(fields_table("fleet", fleet_fields(fleet.life, fleet.gpus)), "")
    output.show(fields_table("plan", plan_fields(found, fleet.gpus)), "", plan_table(found), "")
    output.show_lines(legend(found))
    flags.show_notes(fleet)
    if args.plot is not None:
        output.show("", f"drawn into {args.plot}")


def _draw(path: Path, fleet: Fleet, found: FleetPlan) -> None:
    from prismcore.report.spare_plan import curves, plot_words
    from prismcore.spare.plot import draw

    lines, chosen = curves(found)
    suffix = path.suffix.lower().removeprefix(".")
    with whole_file(path) as out:
        draw(out, suffix, curves=lines, chosen=chosen, **plot_words(found, fleet.gpus))
