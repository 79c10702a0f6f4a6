"""``--cluster`` of imports whose traces may lack times of communication."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from prismcore.cli.usage import UsageError

if TYPE_CHECKING:
    from prismcore.graph import Graph
    from prismcore.profiles.cluster import ClusterProfile

DEFAULT_CLUSTER = "h100-8x"


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """The flag."""
    parser.add_argument(
        "--cluster",
        default=None,
        metavar="NAME|FILE",
        help="cluster profile to cost communication by that the traces hold no times of; default: "
        f"{DEFAULT_CLUSTER}",
    )


def load_chosen(args: argparse.Namespace) -> ClusterProfile:
    """The profile that was chosen, else the default one."""
    from prismcore.profiles.cluster import load_cluster

    return load_cluster(args.cluster or DEFAULT_CLUSTER)


def check_used(args: argparse.Namespace, graph: Graph) -> None:
    """Refuses a choice that changed nothing."""
    if args.cluster is not None and not graph.metadata.get("modelled_communication"):
        raise UsageError(
            "--cluster costs communication that traces hold no times of, and these hold all; leave it out"
        )
