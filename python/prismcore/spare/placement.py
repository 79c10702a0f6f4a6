"""Which shard types each data-parallel group hosts.

N groups, N shard types, redundancy r: a group hosts r types (its *stack*, in the order in which it
computes them), a type has r hosts. SPARe's placement shifts a Golomb ruler around the circle of groups,
so that any two types share at most one group (SPARe, ICML 2026, arXiv 2603.00357).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from prismcore import _core
from prismcore.errors import SpareError
from prismcore.spare.numbers import whole

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    Groups: TypeAlias = Sequence[int] | NDArray[np.integer[Any]]

__all__ = [
    "Placement",
    "custom",
    "cyclic",
    "domains",
    "fewest_hosts_in_domain",
    "golomb",
    "golomb_ruler",
    "groups_needed",
    "largest_redundancy",
    "random",
    "replication",
    "spread",
]

_INT32 = range(-(1 << 31), 1 << 31)


class Placement:
    """An immutable placement; made by the functions of this module."""

    __slots__ = ("_core",)

    def __init__(self, core: _core.SparePlacement) -> None:
        self._core = core

    @property
    def core(self) -> _core.SparePlacement:
        return self._core

    @property
    def groups(self) -> int:
        """N, also the number of shard types."""
        return self._core.groups

    @property
    def redundancy(self) -> int:
        """r: types of a group, hosts of a type."""
        return self._core.redundancy

    @property
    def kind(self) -> str:
        """``golomb``, ``spread``, ``domains``, ``random``, ``cyclic``, ``replication`` or ``custom``."""
        return self._core.kind

    def stacks(self) -> NDArray[np.int32]:
        """(N, r): the types of each group in its order. A copy."""
        return self._core.stacks()

    def hosts(self) -> NDArray[np.int32]:
        """(N, r): the groups of each type. A copy."""
        return self._core.hosts()

    @property
    def max_shared(self) -> int:
        """The most types that any two groups share; at most 1 exactly when any two types share at most
        one group, which is what the closed forms of SPARe rest on."""
        return self._core.max_shared()

    def max_hosts_in_domain(self, domain_of_group: Groups) -> int:
        """The most hosts of one type in one failure domain.

        Raises:
            SpareError: not one domain for each group.
        """
        return self._core.max_hosts_in_domain(integers("domain", domain_of_group))

    def __repr__(self) -> str:
        return f"Placement({self.kind}, groups={self.groups}, redundancy={self.redundancy})"


def integers(what: str, values: Groups) -> NDArray[np.int32]:
    """One row of integers as the core takes it."""
    try:
        found = np.asarray(values)
    except ValueError as error:  # ragged
        raise SpareError(f"{what}s: found no row of integers: {error}") from error
    if found.size == 0:
        return np.empty(0, dtype=np.int32)
    if found.dtype.kind not in "iu" or found.ndim != 1:
        raise SpareError(
            f"{what}s: found an array of {found.dtype} with {found.ndim} dimensions, "
            "expected one row of integers"
        )
    if int(found.min()) not in _INT32 or int(found.max()) not in _INT32:
        raise SpareError(f"{what}s: found {found.min()} to {found.max()}, expected 32-bit integers")
    return np.ascontiguousarray(found, dtype=np.int32)


def checked(placement: Any) -> Placement:
    """Raises SpareError for what is no placement."""
    if isinstance(placement, Placement):
        return placement
    raise SpareError(
        f"placement {placement!r} found, expected one of prismcore.spare.placement, as golomb(600, 9)"
    )


def golomb(groups: int, redundancy: int) -> Placement:
    """SPARe's placement: group w hosts type (w + g_i) mod N at place i, g a Golomb ruler of r marks.

    The ruler is the shortest known (r to 28), beyond it one of Singer, Bose-Chowla or Ruzsa. It fits from
    ``groups_needed(r)`` groups on, and on fewer where its differences happen to differ modulo N.

    Raises:
        SpareError: the groups are too few; names both numbers and what would fit.
    """
    return Placement(_core.SparePlacement.golomb(whole("groups", groups), whole("redundancy", redundancy)))


def spread(groups: int, redundancy: int) -> Placement:
    """Group w hosts type (w + s_i) mod N, marks s all over the circle whose differences all differ modulo N.

    Two types share at most one group, as with :func:`golomb`, so the closed forms hold. Where N is large the
    shortest ruler is short beside it and lost work moves between neighbours alone; here it reaches any group
    over few others: repairs move less and have no slow tail. The marks come from a seeded search of ours,
    equal on every machine; fewer fit than with ``golomb``.

    Raises:
        SpareError: the search found fewer marks; names how many.
    """
    return Placement(_core.SparePlacement.spread(whole("groups", groups), whole("redundancy", redundancy)))


def cyclic(groups: int, redundancy: int) -> Placement:
    """Group w hosts types w to w + r - 1 mod N: for comparison, neighbours share r - 1 types.

    Raises:
        SpareError: redundancy is not within 1 to groups.
    """
    return Placement(_core.SparePlacement.cyclic(whole("groups", groups), whole("redundancy", redundancy)))


def replication(groups: int, redundancy: int) -> Placement:
    """Blocks of r groups that host the same r types: traditional replication.

    Raises:
        SpareError: redundancy does not divide groups.
    """
    return Placement(
        _core.SparePlacement.replication(whole("groups", groups), whole("redundancy", redundancy))
    )


def random(groups: int, redundancy: int, *, seed: int = 0) -> Placement:
    """A random placement in which every place of the stacks holds each type once. Equal seeds give equal
    placements on every machine.

    Raises:
        SpareError: redundancy is not within 1 to groups, or the seed not within 64 bits.
    """
    return Placement(
        _core.SparePlacement.random(
            whole("groups", groups),
            whole("redundancy", redundancy),
            whole("seed", seed, least=0, most=(1 << 64) - 1),
        )
    )


def domains(redundancy: int, domain_of_group: Groups) -> Placement:
    """A placement that survives the loss of failure domains (racks, power feeds).

    No type has more hosts in a domain than ``fewest_hosts_in_domain``: one, where no domain has more than
    N / r groups. Within that, two groups share as few types as a bounded search finds; ``max_shared`` of
    the result says how many (1 where a multiple of a Golomb ruler does it).

    Args:
        redundancy: r, 1 to N.
        domain_of_group: (N,) any integer names of the domains.

    Raises:
        SpareError: redundancy is not within 1 to N.
    """
    return Placement(
        _core.SparePlacement.domains(whole("redundancy", redundancy), integers("domain", domain_of_group))
    )


def custom(stacks: Sequence[Sequence[int]] | NDArray[np.integer[Any]]) -> Placement:
    """The user's own stacks.

    Args:
        stacks: (N, r): the types of each group in its order, each type r times in all.

    Raises:
        SpareError: ragged rows, a type out of range, twice in a group, or with another number of hosts.
    """
    try:
        widths = {len(row) for row in stacks}
    except TypeError as error:
        raise SpareError(f"placement: {error}: expected a row of types for each group") from error
    if len(widths) != 1:
        raise SpareError(
            f"placement: found stacks of {sorted(widths) or 'no'} types, expected one length for all groups"
        )
    flat = integers("type", np.asarray(stacks).reshape(-1))
    return Placement(_core.SparePlacement.custom(len(stacks), widths.pop(), flat))


def golomb_ruler(marks: int) -> list[int]:
    """Ascending marks from 0: the shortest ruler for 1 to 28 marks, beyond it a constructed one.

    Raises:
        SpareError: marks is not within 1 to 512.
    """
    return _core.golomb_ruler(whole("marks", marks))


def groups_needed(redundancy: int) -> int:
    """From this many groups on every number of groups holds ``golomb`` of this redundancy: 2 x ruler
    length + 1. (The paper asserts more than 2 x length - 1; at exactly 2 x length the two ends of the ruler
    meet twice.)"""
    return _core.groups_needed(whole("redundancy", redundancy))


def largest_redundancy(groups: int) -> int:
    """The largest redundancy that ``golomb`` places on so many groups."""
    return _core.largest_redundancy(whole("groups", groups, least=1))


def fewest_hosts_in_domain(redundancy: int, domain_of_group: Groups) -> int:
    """ceil(s r / N), s the groups of the largest domain: a domain hosts s r types and there are N."""
    found = integers("domain", domain_of_group)
    if not 1 <= whole("redundancy", redundancy) <= len(found):
        raise SpareError(
            f"placement: found redundancy {redundancy} and groups {len(found)}, expected 1 to {len(found)}"
        )
    return _core.fewest_hosts_in_domain(redundancy, found)
