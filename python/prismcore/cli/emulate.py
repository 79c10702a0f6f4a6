"""``prism emulate``: run chosen ranks of a mapped job, all others as ghosts."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from prismcore.cli import output, parsing
from prismcore.cli.graphs import open_graph
from prismcore.cli.perturbation import add_perturbations, perturbation_of, perturbation_words
from prismcore.cli.program import add_program_flags, check_program
from prismcore.errors import StoppedError

if TYPE_CHECKING:
    from prismcore.emulate import EmulateOptions, EmulateResult
    from prismcore.graph import Graph
    from prismcore.report.expected_error import ExpectedError

SHOWN_RANKS = 32


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "emulate",
        help="run chosen ranks for real among ghosts from the graph",
        usage="prism emulate JOB.prism --sandbox LIST [options] -- SCRIPT ARGS",
        description="Run the program's sandbox ranks in processes of their own on the virtual GPU; all other "
        "ranks are ghosts that answer from the graph at the right time. After --: what the graph was "
        "collected with, script.py ARGS or -m module ARGS.",
    )
    parser.add_argument("graph", type=Path, metavar="JOB.prism")
    parser.add_argument(
        "--sandbox", type=parsing.rank_list, required=True, metavar="LIST", help="ranks that run: 0,8,16-31"
    )
    parser.add_argument(
        "--clock",
        choices=("virtual", "wall"),
        default="virtual",
        help="virtual (default): times do not depend on this machine; wall: the job's time passes as this "
        "machine's, and ranks that are late delay others",
    )
    parser.add_argument(
        "--on-divergence",
        choices=("stop", "follow"),
        default="stop",
        help="where a sandbox rank does something else than it recorded: stop and name it (default), or go "
        "on, and ghosts take the sizes of what they meet it in",
    )
    add_program_flags(parser, routing_help="how tokens go to experts; default: as collected")
    parser.add_argument(
        "--silence",
        type=parsing.positive_time_ns,
        default=300 * 10**9,
        metavar="TIME",
        help="give up when the ranks that run, or what is imported for them, do nothing for so long (300s)",
    )
    parser.add_argument("--json", action="store_true", help="machine output on stdout")
    add_perturbations(parser)
    parser.set_defaults(run=run, program=None)


def run(args: argparse.Namespace) -> int:
    from prismcore.emulate import EmulateOptions, differences
    from prismcore.report.expected_error import expected_error
    from prismcore.report.warnings import graph_warnings, iteration_warnings

    check_program(args)
    graph = open_graph(args.graph)
    options = EmulateOptions(
        command=args.program,
        sandbox=args.sandbox,
        perturbation=perturbation_of(args, graph),
        on_divergence=args.on_divergence,
        clock=args.clock,
        routing=args.routing,
        rules=args.rules,
        preload=args.preload,
        silence_s=args.silence * 1e-9,
    )
    for difference in differences(graph, options):
        output.note(f"warning: {difference}")
    try:
        result = _emulate(graph, options)
    except StoppedError as stopped:
        if stopped.result is None:
            raise
        result = stopped.result
    if result is None:
        return 0
    if options.perturbation.is_none and options.clock == "virtual":
        result.warnings.extend(iteration_warnings(result.job))
    expected = expected_error(
        graph, change=_change(options, result), iteration_ns=result.median_iteration_time_ns
    )
    result.warnings.extend([*graph_warnings(graph), *expected.warnings])
    if args.json:
        output.show_json(expected.beside_provenance(result.to_json()))
    else:
        _show(args, graph, options, result, expected)
    failure = result.job.failure
    return StoppedError.exit_code if failure is not None and failure.stopped else 0


def _emulate(graph: Graph, options: EmulateOptions) -> EmulateResult | None:
    """None on a machine that is not the first of several."""
    from prismcore import interrupts
    from prismcore.emulate import emulate, joined, machines_of_torchrun, serve

    with (
        output.terminated_as_interrupt(),
        interrupts.held(),
        output.stdout_kept_clean(),
        output.progress_bar() as step,
    ):
        progress = None if step is None else lambda text: step(0, 0, text)
        found = machines_of_torchrun(os.environ)
        if found is None:
            return emulate(graph, options, progress, tell_output=output.complain)
        with joined(*found, graph, options) as machines:
            if machines.number == 0:
                return emulate(graph, options, progress, machines, output.complain)
            serve(graph, options, machines, output.complain)
            return None


def _change(options: EmulateOptions, result: EmulateResult) -> str | None:
    """What makes this another job than the graph's."""
    if not options.perturbation.is_none:
        return "such perturbations"
    if options.clock == "wall":
        return "the lateness of this machine"
    return "a rank that leaves its record" if result.diverged else None


def _show(
    args: argparse.Namespace,
    graph: Graph,
    options: EmulateOptions,
    result: EmulateResult,
    expected: ExpectedError,
) -> None:
    from prismcore.rank_list import format_ranks
    from prismcore.report.emulate import emulate_fields, sandbox_table
    from prismcore.report.table import fields_table

    if result.job.failure is not None:
        output.show_lines([*result.job.failure.lines(), ""])
    if result.median_iteration_time_ns is None:
        output.show(f"{args.graph}: no iteration ended on all ranks")
    else:
        output.show(
            fields_table(str(args.graph), [*emulate_fields(result), ("expected error", expected.words())])
        )
        output.show("", sandbox_table(graph, result, SHOWN_RANKS))
    output.show_warnings(result.warnings)
    ranks = format_ranks(options.sandbox)
    replay = f"prism replay {shlex.quote(str(args.graph))} --ranks {ranks}{perturbation_words(args)}"
    other_clock = " (in virtual time)" if options.clock == "wall" else ""
    output.show("", f"next{other_clock}: {replay}")
