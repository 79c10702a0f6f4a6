"""The flags of ``prism replay`` and ``prism emulate`` that make ranks and links slower, uneven or lost."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from prismcore.cli import parsing
from prismcore.cli.graphs import check_ranks
from prismcore.rank_list import format_ranks
from prismcore.units import format_exact_ns

if TYPE_CHECKING:
    from prismcore.graph import Graph
    from prismcore.replay import Perturbation


def add_perturbations(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("perturbations", "Times are those of the job: 0 is its beginning.")
    group.add_argument(
        "--slow-rank",
        type=parsing.slow_rank,
        action="append",
        default=[],
        metavar="R:FACTOR[@t0-t1]",
        help="kernels of rank R take FACTOR times as long, those that start in a span if given, or as long "
        "as the clock curve of a CSV file says; may be given again: 3:1.5, 3:2@10ms-1s, 3:hot.csv",
    )
    group.add_argument(
        "--slow-link",
        type=parsing.slow_link,
        action="append",
        default=[],
        metavar="A-B:FACTOR[@t0-t1]",
        help="messages between ranks A and B, and collectives in which they are neighbours, take FACTOR "
        "times as long; B may be *: all links of A; may be given again: 0-8:4, 0-*:2@10ms-1s",
    )
    group.add_argument(
        "--jitter",
        type=parsing.jitter,
        default=None,
        metavar="SEED:SIGMA",
        help="each kernel takes a random factor of mean 1 as long, with SIGMA the standard deviation of its "
        "logarithm: 7:0.05",
    )
    group.add_argument(
        "--fail-ranks",
        type=parsing.failures,
        action="append",
        default=[],
        metavar="LIST@t",
        help="these ranks are lost at t, with what they have not ended; may be given again: 0,8-15@2s",
    )


def perturbation_of(args: argparse.Namespace, graph: Graph) -> Perturbation:
    """What the flags of :func:`add_perturbations` say.

    Raises PrismError: a rank that `graph` does not hold, a clock curve that cannot be.
    """
    from prismcore.replay import (
        Jitter,
        Perturbation,
        RankFailure,
        SlowLink,
        SlowRank,
        read_clock_curve,
    )

    check_ranks(graph, (slow.rank for slow in args.slow_rank), "--slow-rank")
    linked = (rank for link in args.slow_link for rank in (link.rank, link.other) if rank is not None)
    check_ranks(graph, linked, "--slow-link")
    check_ranks(graph, (rank for flag in args.fail_ranks for rank in flag.ranks), "--fail-ranks")
    slow_ranks: list[SlowRank] = []
    for flag in args.slow_rank:
        if isinstance(flag, parsing.ClockCurveFlag):
            slow_ranks += read_clock_curve(flag.file, flag.rank)
        else:
            slow_ranks.append(
                SlowRank(rank=flag.rank, factor=flag.factor, from_ns=flag.from_ns, to_ns=flag.to_ns)
            )
    return Perturbation(
        slow_ranks=slow_ranks,
        slow_links=[
            SlowLink(rank=s.rank, other=s.other, factor=s.factor, from_ns=s.from_ns, to_ns=s.to_ns)
            for s in args.slow_link
        ],
        jitter=None if args.jitter is None else Jitter(seed=args.jitter.seed, sigma=args.jitter.sigma),
        failures=[
            RankFailure(rank=rank, at_ns=flag.at_ns) for flag in args.fail_ranks for rank in flag.ranks
        ],
    )


def perturbation_words(args: argparse.Namespace) -> str:
    """The same flags for another command line, with a space before each; empty where there are none."""
    words: list[str] = []
    for slow in args.slow_rank:
        if isinstance(slow, parsing.ClockCurveFlag):
            words += ["--slow-rank", f"{slow.rank}:{slow.file}"]
        else:
            words += ["--slow-rank", f"{slow.rank}:{slow.factor!r}{_span(slow)}"]
    for link in args.slow_link:
        other = "*" if link.other is None else link.other
        words += ["--slow-link", f"{link.rank}-{other}:{link.factor!r}{_span(link)}"]
    if args.jitter is not None:
        words += ["--jitter", f"{args.jitter.seed}:{args.jitter.sigma!r}"]
    for flag in args.fail_ranks:
        words += ["--fail-ranks", f"{format_ranks(flag.ranks)}@{format_exact_ns(flag.at_ns)}"]
    return "".join(f" {shlex.quote(word)}" for word in words)


def _span(flag: parsing.SlowRankFlag | parsing.SlowLinkFlag) -> str:
    if flag.from_ns is None or flag.to_ns is None:
        return ""
    return f"@{format_exact_ns(flag.from_ns)}-{format_exact_ns(flag.to_ns)}"
