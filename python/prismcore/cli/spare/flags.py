"""Flags that the subcommands share, and the fleet that they describe."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prismcore.cli import output, parsing
from prismcore.cli.usage import UsageError
from prismcore.errors import SpareError

if TYPE_CHECKING:
    from prismcore.spare.job import StepCosts
    from prismcore.spare.life import LifeOptions

MOST_GROUPS = 1_000_000
MOST_GPUS = 1_000_000_000
MOST_STEPS = 1_000_000_000
MOST_MICRO_BATCHES = 4096
MOST_SEEDS = 100_000

_WEIBULL = re.compile(r"weibull:(\d+(?:\.\d+)?)")


def distribution(text: str) -> str:
    """``weibull:0.78`` or ``exponential``."""
    match = _WEIBULL.fullmatch(text)
    if text == "exponential" or (match and 0.1 <= float(match[1]) <= 100):
        return text
    raise argparse.ArgumentTypeError(
        f"found {text!r}, expected exponential, or weibull:SHAPE with a shape from 0.1 to 100"
    )


def add_groups(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--groups",
        type=parsing.whole_number(1, MOST_GROUPS),
        default=600,
        metavar="N",
        help="data-parallel groups (%(default)s)",
    )


def add_redundancy(parser: argparse.ArgumentParser, meaning: str) -> None:
    parser.add_argument(
        "--redundancy", type=parsing.whole_number(1, MOST_GROUPS), default=None, metavar="R", help=meaning
    )


def add_interval(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--checkpoint-steps",
        type=parsing.whole_number(1, MOST_STEPS),
        default=None,
        metavar="N",
        help="steps between two checkpoints; default: by the closed form",
    )


def check_redundancy(args: argparse.Namespace) -> None:
    if args.redundancy is not None and args.redundancy > args.groups:
        raise UsageError(
            f"redundancy {args.redundancy} and groups {args.groups} found, expected a redundancy of at most "
            f"{args.groups}: a group hosts a type once"
        )


def add_fleet(parser: argparse.ArgumentParser) -> None:
    """What :func:`fleet_of` reads."""
    add_groups(parser)
    parser.add_argument(
        "--gpus",
        type=parsing.whole_number(1, MOST_GPUS),
        default=None,
        metavar="N",
        help="GPUs of all groups together; default: 600000, rounded down to equal groups",
    )
    parser.add_argument(
        "--steps",
        type=parsing.whole_number(1, MOST_STEPS),
        default=10_000,
        metavar="N",
        help="training steps (%(default)s)",
    )
    parser.add_argument(
        "--mtbf-s",
        type=parsing.positive_seconds,
        default=None,
        metavar="SECONDS",
        help="mean time between failures of the fleet, all groups up; default: 300 at 600000 GPUs, and as "
        "many failures a GPU where --gpus is given",
    )
    parser.add_argument(
        "--distribution",
        type=distribution,
        default=None,
        metavar="weibull:SHAPE|exponential",
        help="of the time between failures of a group (weibull:0.78)",
    )
    parser.add_argument(
        "--trace",
        type=Path,
        default=None,
        metavar="FILE",
        help="failures from a CSV file of rows group,seconds, instead of the two above",
    )
    for flag, default, meaning in (
        ("--restart-s", 3600.0, "a global restart, undisturbed"),
        ("--load-s", 0.0, "to read the checkpoint after a restart"),
        ("--checkpoint-s", 60.0, "to write a checkpoint"),
        ("--rejoin-s", 0.0, "all wait while repaired groups or spares join"),
        ("--swap-s", 0.0, "from a failure until a spare stands ready"),
    ):
        parser.add_argument(
            flag, type=parsing.seconds, default=default, metavar="SECONDS", help=f"{meaning} (%(default)g)"
        )
    parser.add_argument(
        "--repair-s",
        type=parsing.seconds,
        default=None,
        metavar="SECONDS",
        help="from a failure until the group re-joins; default: not before the next restart",
    )
    for flag, least, default, meaning in (
        ("--spares", 0, 0, "hot spares: idle hardware for whole groups"),
        ("--rack-groups", 1, 1, "groups that share a rack, neighbours by number"),
    ):
        parser.add_argument(
            flag,
            type=parsing.whole_number(least, MOST_GROUPS),
            default=default,
            metavar="N",
            help=f"{meaning} (%(default)s)",
        )
    for flag, share, meaning in (
        ("--rack-share", 0.0, "share of failures that take their whole rack"),
        ("--jitter", 0.05, "standard deviation of the time of a shard, relative"),
    ):
        parser.add_argument(
            flag, type=parsing.share, default=share, metavar="SHARE", help=f"{meaning} (%(default)g)"
        )
    parser.add_argument(
        "--layer-s",
        type=parsing.positive_seconds,
        default=None,
        metavar="SECONDS",
        help="to compute one shard: forward and backward of all its micro-batches (64)",
    )
    parser.add_argument(
        "--allreduce-s",
        type=parsing.seconds,
        default=None,
        metavar="SECONDS",
        help="what a step does once: gradient reduction, optimizer; default: 0.01 a group, 6 at 600",
    )
    parser.add_argument(
        "--job",
        type=Path,
        default=None,
        metavar="JOB.prism",
        help="take --layer-s and --allreduce-s from the replay of a mapped job",
    )


def add_simulation(parser: argparse.ArgumentParser) -> None:
    """How, and how often, lives are simulated; also read by :func:`fleet_of`."""
    parser.add_argument(
        "--model",
        choices=("published", "corrected"),
        default="published",
        help="rules of the published simulator, or those of a real system (%(default)s)",
    )
    parser.add_argument(
        "--seeds",
        type=parsing.whole_number(1, MOST_SEEDS),
        default=5,
        metavar="N",
        help="trainings to simulate, of seeds 0 to N-1 (%(default)s)",
    )
    parser.add_argument(
        "--threads",
        type=parsing.whole_number(1, 1024),
        default=None,
        metavar="N",
        help="results do not depend on it; default: one a core",
    )


@dataclass(kw_only=True, slots=True, frozen=True)
class Fleet:
    """What the flags of :func:`add_fleet` say."""

    life: LifeOptions
    """Policy, redundancy, granularity and interval are those of LifeOptions itself."""
    gpus: int
    notes: list[str]
    """One line each on what was not given but derived."""


def fleet_of(args: argparse.Namespace) -> Fleet:
    """Raises UsageError where flags do not go together, PrismError for a job without step costs or a
    trace that cannot be read."""
    from prismcore.report.units import plural
    from prismcore.spare import fleet as fleets
    from prismcore.spare.failures import FailureTrace
    from prismcore.spare.life import LifeOptions

    if args.job is not None and args.layer_s is not None:
        raise UsageError("--layer-s and --job found, expected one of them: a job says its own step times")
    if args.trace is not None and (args.mtbf_s is not None or args.distribution is not None):
        raise UsageError("--trace found with --mtbf-s or --distribution, expected either: it says both")
    notes: list[str] = []
    gpus = fleets.paper_gpus(args.groups) if args.gpus is None else args.gpus
    with usage_errors():
        fleets.check_gpus(gpus, args.groups)
    mtbf_s = args.mtbf_s
    if mtbf_s is None:
        mtbf_s = fleets.PAPER_MTBF_S if args.gpus is None else fleets.paper_mtbf_s(gpus)
        if args.gpus is not None and args.trace is None:
            notes.append(
                f"--mtbf-s not given: at the paper's rate (300 s at 600,000 GPUs), {gpus:,} GPUs fail every "
                f"{mtbf_s:,.0f} s"
            )
    layer_s, allreduce_s = args.layer_s, args.allreduce_s
    if args.job is not None:
        costs = job_costs(args.job)
        layer_s = costs.shard_ns / 1e9
        allreduce_s = costs.once_ns / 1e9 if allreduce_s is None else allreduce_s
        notes.append(job_words(args.job, costs, args.groups, taken=args.allreduce_s is None))
    trace = None if args.trace is None else FailureTrace.read_csv(args.trace)
    if trace is not None:
        mtbf_s = max(max(ns for _, ns in trace.failures) / 1e9 / len(trace.failures), 1e-3)
        notes.append(
            f"{args.trace}: {plural(len(trace.failures), 'failure')}, one in {mtbf_s:,.1f} s; closed forms "
            "take that rate, and no group fails after the last"
        )
    life = LifeOptions(
        groups=args.groups,
        steps=args.steps,
        layer_s=64.0 if layer_s is None else layer_s,
        allreduce_s=allreduce_s,
        restart_s=args.restart_s,
        load_s=args.load_s,
        checkpoint_s=args.checkpoint_s,
        jitter=args.jitter,
        mtbf_s=mtbf_s,
        distribution=args.distribution or "weibull:0.78",
        trace=trace,
        domain_groups=args.rack_groups,
        domain_share=args.rack_share,
        repair_s=args.repair_s,
        rejoin_s=args.rejoin_s,
        spares=args.spares,
        swap_s=args.swap_s,
        model=args.model,
        seeds=args.seeds,
        threads=args.threads or len(os.sched_getaffinity(0)),
    )
    return Fleet(life=life, gpus=gpus, notes=notes)


def show_notes(fleet: Fleet) -> None:
    for note in fleet.notes:
        output.show_lines(["", f"note: {note}"])


def job_costs(path: Path) -> StepCosts:
    """Step costs of a ``.prism`` file; errors name the file."""
    from prismcore.cli.graphs import open_graph
    from prismcore.spare.job import step_costs

    graph = open_graph(path)
    try:
        return step_costs(graph)
    except SpareError as error:
        raise SpareError(f"{path}: {error}") from error


def job_words(path: Path, costs: StepCosts, groups: int, *, taken: bool) -> str:
    """What was found in the job, in one line."""
    from prismcore.report.units import format_ns, plural

    text = (
        f"{path}: a step of {format_ns(costs.iteration_ns)} is a shard of {format_ns(costs.shard_ns)} and "
        f"{format_ns(costs.once_ns)} once a step (gradients over {' and '.join(costs.communicators)} of "
        f"{costs.trainer}, {format_ns(costs.exposed_ns)} of it not hidden; then the optimizer), as rank "
        f"{costs.rank} sees it"
    )
    if not taken:
        text += "; --allreduce-s replaces the latter"
    elif costs.groups != groups:
        has = plural(costs.groups, "group")
        text += f"; the job has {has}, not {groups:,}: a reduction over more takes longer"
    return text


@contextmanager
def usage_errors() -> Iterator[None]:
    """Values that cannot be are flags that cannot be: exit code 2."""
    try:
        yield
    except SpareError as error:
        raise UsageError(str(error)) from error
