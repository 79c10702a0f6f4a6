"""What a graph was collected with beside what an emulation is given: where a rank may leave its record."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from prismcore.emulate.options import EmulateOptions
from prismcore.graph import Graph
from prismcore.routing import parse_rule
from prismcore.rules import digest_of_rules

__all__ = ["differences", "hints"]


def differences(graph: Graph, options: EmulateOptions) -> list[str]:
    """One line for each of program, routing and rules that is not as in the collection of `graph`.

    Raises RuleError: a file of rules that cannot be read.
    """
    metadata = graph.metadata
    return [*_program(metadata, options), *_routing(metadata, options), *_rules(metadata, options)]


def hints(differing: Sequence[str], options: EmulateOptions) -> str:
    """:func:`differences` and what to do, to be put behind a divergence."""
    found = [*differing]
    if options.on_divergence == "stop":
        found.append("--on-divergence follow goes on, where calls differ in their sizes alone")
    return "".join(f"; {text}" for text in found)


def _program(metadata: dict[str, Any], options: EmulateOptions) -> list[str]:
    recorded = metadata.get("command")
    if not isinstance(recorded, list) or _plain(recorded) == _plain(options.command):
        return []
    return [f"the graph was collected with: {_shown(recorded)}; given: {_shown(options.command)}"]


def _plain(command: Sequence[str]) -> list[str]:
    """Wherever the script lies."""
    first, *others = map(str, command)
    return [PurePath(first).name, *others]


def _shown(command: Sequence[str]) -> str:
    return shlex.join(map(str, command))


def _routing(metadata: dict[str, Any], options: EmulateOptions) -> list[str]:
    recorded = metadata.get("routing")
    if not recorded or options.routing is None or str(parse_rule(options.routing)) == recorded:
        return []
    return [f"the graph was collected with --routing {recorded}; given: {parse_rule(options.routing)}"]


def _rules(metadata: dict[str, Any], options: EmulateOptions) -> list[str]:
    recorded = metadata.get("rules")
    file = metadata.get("rules_file") or {}
    if not recorded:
        if options.rules is None or "command" not in metadata:
            return []
        return [f"the graph was collected without rules for what ghosts send; given: --rules {options.rules}"]
    names = ", ".join(name.partition(" ")[2] for name in recorded)
    collected = f"the graph was collected with --rules {file.get('name', 'FILE')} ({names})"
    if options.rules is None:
        return [f"{collected} for what ghosts send, and none are given here"]
    if file.get("sha256") in (None, digest_of_rules(options.rules, options.working_directory)):
        return []
    return [f"{collected} for what ghosts send; given: --rules {options.rules}, which holds another text"]
