"""``prism collect``: map every rank of an ordinary training program."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prismcore.cli import output, parsing
from prismcore.cli.graphs import check_output, cluster_path
from prismcore.cli.info import info_json, show_info
from prismcore.cli.program import add_program_flags, check_program
from prismcore.errors import PrismError
from prismcore.rank_list import format_ranks

if TYPE_CHECKING:
    from prismcore.collect import CollectOptions, CollectProgress, CollectResult
    from prismcore.collect.options import ProgressCallback
    from prismcore.graph import Graph

PHASES = {
    "start": "importing the program's modules",
    "classes": "ranks run to find classes",
    "ranks": "ranks run",
    "confirm": "ranks run to check classes",
    "merge": "putting ranks together",
    "done": "done",
}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "collect",
        help="map every rank of a training program, with no GPU",
        usage="prism collect --world-size N [options] -o JOB.prism -- SCRIPT ARGS",
        description="Run an ordinary torchrun program rank by rank on a virtual GPU and write its execution "
        "graph. After --: script.py ARGS, or -m module ARGS, as torchrun takes them, untouched.",
    )
    parser.add_argument(
        "--world-size", type=parsing.positive_int, required=True, metavar="N", help="ranks of the job"
    )
    parsing.add_graph_output(parser)
    parser.add_argument(
        "--device", default="virtual:h100", metavar="virtual:NAME|FILE", help="device profile (%(default)s)"
    )
    parser.add_argument(
        "--cluster", default=None, metavar="NAME|FILE", help="cluster profile; default: the device's"
    )
    parser.add_argument(
        "--ranks",
        type=ranks_choice,
        default="auto",
        metavar="auto|all|LIST",
        help="which ranks run: auto runs some of each class and infers the others (%(default)s)",
    )
    parser.add_argument(
        "--slots",
        type=parsing.positive_int,
        default=None,
        metavar="N",
        help="ranks at a time; default: by cores",
    )
    parser.add_argument(
        "--iterations", type=parsing.positive_int, default=3, metavar="N", help="iterations (%(default)s)"
    )
    parser.add_argument(
        "--host",
        choices=("profile", "measured"),
        default="profile",
        help="host time between calls: of the profile, reproducible, or as measured here (%(default)s)",
    )
    add_program_flags(
        parser,
        routing_help="how tokens go to experts, in a program with a dispatcher of Megatron (balanced)",
    )
    parser.add_argument(
        "--keep-partial",
        action="store_true",
        help="when a rank fails, or at Ctrl-C, save the graph of the ranks so far",
    )
    parser.add_argument("--json", action="store_true", help="machine output on stdout: that of prism info")
    parser.set_defaults(run=run, program=None)


def ranks_choice(text: str) -> str | list[int]:
    """``auto``, ``all`` or a rank list."""
    return text if text in ("auto", "all") else parsing.rank_list(text)


def run(args: argparse.Namespace) -> int:
    from prismcore.collect import CollectOptions
    from prismcore.report.warnings import collection_warnings

    check_program(args)
    options = CollectOptions(
        command=args.program,
        world_size=args.world_size,
        device=args.device,
        cluster=cluster_path(args.cluster),
        ranks=args.ranks if isinstance(args.ranks, str) else format_ranks(args.ranks),
        slots=args.slots,
        iterations=args.iterations,
        host=args.host,
        routing=args.routing,
        rules=args.rules,
        preload=args.preload,
        keep_partial=args.keep_partial,
    )
    with output.terminated_as_interrupt():
        result = _collect_and_save(args, options)
        with _told_if_interrupted(args), output.progress_bar() as step:
            if step is not None:
                step(0, 0, "checking that the ranks can run together")
            found = collection_warnings(result.graph)
    if args.json:
        output.show_json(_json(args, result, found))
    else:
        _show(args, result, found)
    return 0


def _collect_and_save(args: argparse.Namespace, options: CollectOptions) -> CollectResult:
    from prismcore import interrupts
    from prismcore.collect import CollectInterrupted, collect

    saved = False
    try:
        with interrupts.held():
            check_output(args.output, source=Path(args.program[0]))
            with output.stdout_kept_clean(), output.progress_bar() as step:
                result = collect(options, None if step is None else _teller(step))
            if not args.keep_partial:
                interrupts.check()
            result.graph.save(args.output)
            saved = True
    except (PrismError, CollectInterrupted) as error:
        if args.keep_partial:
            _save_partial(args, error.partial)
        raise
    except KeyboardInterrupt:
        if saved:
            _tell_complete(args)
        raise
    return result


@contextmanager
def _told_if_interrupted(args: argparse.Namespace) -> Iterator[None]:
    """In what comes behind the collection."""
    try:
        yield
    except KeyboardInterrupt:
        _tell_complete(args)
        raise


def _tell_complete(args: argparse.Namespace) -> None:
    output.note(f"{args.output} is complete")


def _save_partial(args: argparse.Namespace, partial: Graph | None) -> None:
    if partial is None:
        output.note("nothing was saved: no rank had recorded anything")
        return
    partial.save(args.output)
    cut_short = partial.metadata["ranks_cut_short"]
    told = f", {cut_short} of them cut short" if cut_short else ""
    output.note(f"saved {len(partial.ranks)} of {args.world_size} ranks to {args.output}{told}")


def _teller(step: output.Progress) -> ProgressCallback:
    def tell(progress: CollectProgress) -> None:
        step(progress.done, progress.planned, PHASES[progress.phase])

    return tell


def _json(args: argparse.Namespace, result: CollectResult, found: list[str]) -> dict[str, Any]:
    from prismcore.report.expected_error import expected_error
    from prismcore.report.warnings import graph_warnings

    return {
        "output": str(args.output),
        "wall_time_s": result.wall_time_s,
        **info_json(result.graph),
        "warnings": [*found, *graph_warnings(result.graph), *expected_error(result.graph).warnings],
    }


def _show(args: argparse.Namespace, result: CollectResult, found: list[str]) -> None:
    show_info(str(args.output), result.graph, more_warnings=found)
    output.show(
        "", f"collected in {result.wall_time_s:.1f} s; next: prism replay {shlex.quote(str(args.output))}"
    )
