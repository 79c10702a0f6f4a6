"""What ghosts send: a user's rules in place of the uniform contract.

A file of rules is Python, given as ``--rules FILE`` to ``prism collect`` and ``prism emulate``::

    from prismcore.rules import Call, rule

    @rule(group="*data_parallel*", kind="all_reduce", dtype="float32", elements=1)
    def norm(call: Call, received):
        return 1.0                     # every gradient norm is 1

    @rule(kind="all_gather", dtype="int64", call_site="*token_dispatcher.py:*")
    def counts(call: Call, received):
        received[received.numel() // 2 :] = 17     # what the second half of the ranks has

The first rule in the file that fits a call gives what the rank receives. It is called in the order of the
stream, each time with a copy of what the rank would receive without it.
"""

from __future__ import annotations

import hashlib
import inspect
import runpy
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from prismcore.errors import RuleError
from prismcore.graph import DataType, OpKind

__all__ = ["Call", "Rule", "digest_of_rules", "load_rules", "rule", "unused_rules"]

KINDS = tuple(kind.name.lower() for kind in OpKind if kind.is_communication)
DTYPES = tuple(dtype.name.lower() for dtype in DataType if dtype is not DataType.NONE)


@dataclass(kw_only=True, slots=True, frozen=True)
class Call:
    """A communication call of a rank that receives something."""

    rank: int  #: in the world
    group: str  #: name of the communicator
    size: int  #: of the communicator
    position: int  #: of the rank in it
    kind: str  #: ``all_reduce``, ``all_gather``, ``recv``, ...
    dtype: str  #: ``float32``, ``bfloat16``, ...
    elements: int  #: that the rank receives
    peer: int  #: position of the other side, or of the root; -1: none
    iteration: int  #: that the rank is in, from 0
    call_site: str
    number: int  #: how many calls of this rank the rule has had before


Fill = Callable[[Call, Any], Any]
"""Gets a tensor [elements] of the call's dtype, on the CPU. Returns what the rank receives instead (a tensor,
an array or a number, of a shape that broadcasts to it); None: the tensor as it is now."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Rule:
    """Which calls, and what they receive. Patterns are those of :mod:`fnmatch`, in which case counts."""

    fill: Fill
    group: str = "*"
    kind: str = "*"
    dtype: str = "*"
    elements: int | None = None
    call_site: str = "*"
    ranks: Collection[int] | None = None

    @property
    def name(self) -> str:
        return getattr(self.fill, "__name__", "rule")

    def fits(self, call: Call) -> bool:
        return (
            (self.elements is None or self.elements == call.elements)
            and (self.ranks is None or call.rank in self.ranks)
            and fnmatchcase(call.kind, self.kind)
            and fnmatchcase(call.dtype, self.dtype)
            and fnmatchcase(call.group, self.group)
            and fnmatchcase(call.call_site, self.call_site)
        )


_loading: list[list[Rule]] = []  # of the file that runs


def rule(
    *,
    group: str = "*",
    kind: str = "*",
    dtype: str = "*",
    elements: int | None = None,
    call_site: str = "*",
    ranks: Collection[int] | None = None,
) -> Callable[[Fill], Fill]:
    """Makes a function the rule for the calls that fit all that is given.

    Raises RuleError outside a file of rules, where no call could ever fit, and where the function does not
    take a call and a tensor.
    """

    def register(fill: Fill) -> Fill:
        name = getattr(fill, "__name__", "rule")
        if not _loading:
            raise RuleError(f"rule {name} found outside a file given as --rules; expected it in one")
        made = Rule(
            fill=fill,
            group=_pattern(name, "group", group),
            kind=_pattern(name, "kind", kind, KINDS),
            dtype=_pattern(name, "dtype", dtype, DTYPES),
            elements=None if elements is None else _whole(name, "elements", elements),
            call_site=_pattern(name, "call_site", call_site),
            ranks=None if ranks is None else _ranks(name, ranks),
        )
        try:
            inspect.signature(fill).bind(None, None)
        except ValueError:  # a function of C, whose arguments nobody knows
            pass
        except TypeError as error:
            raise RuleError(f"rule {name}: expected a function of a call and a tensor ({error})") from None
        _loading[-1].append(made)
        return fill

    return register


def unused_rules(uses: Iterable[tuple[str, int]], of: str) -> list[str]:
    """A line for each rule (its number and name) that fitted no call ``of`` some ranks."""
    return [
        f"rule {name.partition(' ')[2]} (number {name.partition(' ')[0]} of its file) fitted no call of {of}"
        for name, calls in uses
        if calls == 0
    ]


def _pattern(name: str, what: str, pattern: object, among: Sequence[str] | None = None) -> str:
    if not isinstance(pattern, str):
        raise RuleError(f"rule {name}: {what} {pattern!r} found, expected a text")
    if among is not None and not any(fnmatchcase(one, pattern) for one in among):
        raise RuleError(f"rule {name}: {what} {pattern!r} fits none; expected one of {', '.join(among)}")
    return pattern


def _whole(name: str, what: str, number: object) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise RuleError(f"rule {name}: {what} {number!r} found, expected a whole number from 0 on")
    return number


def _ranks(name: str, ranks: object) -> frozenset[int]:
    if isinstance(ranks, str) or not isinstance(ranks, Iterable):
        raise RuleError(f"rule {name}: ranks {ranks!r} found, expected several, as [0, 3]")
    return frozenset(_whole(name, "rank", rank) for rank in ranks)


def digest_of_rules(rules: Path, folder: Path | None = None) -> str:
    """SHA-256 of a file of rules, in hexadecimal; ``folder``: where a relative path begins (here).

    Raises RuleError: the file cannot be read.
    """
    try:
        return hashlib.sha256(((folder or Path.cwd()) / rules).read_bytes()).hexdigest()
    except OSError as error:
        raise RuleError(f"rules {rules} cannot be read: {error.strerror or error}") from error


def load_rules(path: Path) -> list[Rule]:
    """The rules of a file, in its order.

    Raises RuleError: the file cannot be read or run, or holds no rule.
    """
    found: list[Rule] = []
    _loading.append(found)
    try:
        runpy.run_path(str(path), run_name="prismcore_rules")
    except RuleError as error:
        raise RuleError(f"rules {path}: {error}") from None
    except OSError as error:
        raise RuleError(f"rules {path} cannot be read: {error.strerror or error}") from error
    except (Exception, SystemExit) as error:  # a file of the user's may do anything
        told = str(error).partition("\n")[0]
        raise RuleError(f"rules {path}: running it ended with {type(error).__name__}: {told}") from error
    finally:
        _loading.pop()
    if not found:
        raise RuleError(f"rules {path} holds no rule; expected a function under @prismcore.rules.rule(...)")
    return found
