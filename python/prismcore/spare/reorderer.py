"""Who computes what after groups are lost or come back.

RECTLR of the SPARe paper (arXiv 2603.00357), made incremental and, with ``micro_batches`` > 1, by
micro-batch instead of by whole shard. What is guaranteed and how: ``docs/spare.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from prismcore import _core
from prismcore.errors import SpareError
from prismcore.spare.numbers import whole
from prismcore.spare.placement import Placement, checked, integers

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    Groups: TypeAlias = int | Sequence[int] | NDArray[np.integer[Any]]

__all__ = ["Part", "Plan", "Reorderer"]


class Part(NamedTuple):
    """Micro-batch ``part`` (0 to m - 1) of shard ``type`` (0 to N - 1)."""

    type: int
    part: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What one call changed. Depths count micro-batches.

    Attributes:
        outcome: ``kept`` (nobody computes anything new), ``reordered`` (same depth), ``deepened``,
            ``shallower`` (after a re-join) or ``wipe_out`` (restart from the checkpoint).
        depth: what the fullest survivor computes in a step from the next one on.
        survivors: groups that are up.
        new_work: parts that a group computes from the next step on and would not have at this depth; the
            least possible.
        patch_depth: the most patches of one group.
        lost_types: of a wipe-out, ascending.
        patches: rows (group, type, part): the group computes the part in the running step, because no
            survivor holds its gradient.
        moves: rows (type, part, from, to): owners from the next step on; ``from`` may be down.
        digest: over all of this, so that plans compare by it; equal on survivors that saw the same calls
            on the same placement since the last restart.
    """

    outcome: str
    depth: int
    survivors: int
    new_work: int
    patch_depth: int
    lost_types: tuple[int, ...]
    patches: NDArray[np.int32] = field(compare=False)
    moves: NDArray[np.int32] = field(compare=False)
    digest: int
    _solver: _core.SpareReorderer = field(repr=False, compare=False)
    _version: int = field(repr=False, compare=False)

    @property
    def wipe_out(self) -> bool:
        return self.outcome == "wipe_out"

    def work(self, group: int) -> list[Part]:
        """What the group computes in a step, in order.

        Raises:
            SpareError: a later call changed the layout, the plan is a wipe-out, or no such group.
        """
        return [Part(*pair) for pair in self._solver.work(whole("group", group), self._version)]


class Reorderer:
    """The layout of a job, and its repair.

    Safe to call from several threads, one call at a time; the GIL is not held meanwhile. Equal calls give
    equal plans on every machine.

    Args:
        placement: which types each group hosts.
        micro_batches: m, parts of a shard that move one by one. 1 is exactly the paper.

    Raises:
        SpareError: micro_batches below 1.
    """

    __slots__ = ("_placement", "_solver")

    def __init__(self, placement: Placement, *, micro_batches: int = 1) -> None:
        self._placement = placement
        self._solver = _core.SpareReorderer(checked(placement).core, whole("micro_batches", micro_batches))

    @property
    def placement(self) -> Placement:
        return self._placement

    @property
    def micro_batches(self) -> int:
        return self._solver.micro_batches

    @property
    def depth(self) -> int:
        """Micro-batches that the fullest survivor computes in a step."""
        return self._solver.depth

    @property
    def survivors(self) -> int:
        return self._solver.survivors

    @property
    def wiped_out(self) -> bool:
        return self._solver.wiped_out

    @property
    def digest(self) -> int:
        """Of the calls so far; see ``Plan.digest``."""
        return self._solver.digest

    def alive(self, group: int) -> bool:
        return self._solver.alive(whole("group", group))

    def fail(self, groups: Groups) -> Plan:
        """Groups go down, all at once; their order does not matter.

        Raises:
            SpareError: a group is down already, named twice or out of range, or the last failure was a
                wipe-out. Nothing changes then.
        """
        return self._plan(self._solver.fail(_list(groups)))

    def rejoin(self, groups: Groups) -> Plan:
        """Groups come back with their placement's own stack, own nothing at first, and take work only
        where that makes the depth less.

        Raises:
            SpareError: a group is up already, named twice or out of range, or the last failure was a
                wipe-out. Nothing changes then.
        """
        return self._plan(self._solver.rejoin(_list(groups)))

    def commit(self) -> None:
        """The running step is over: what was patched or moved is now ordinary work.

        Raises:
            SpareError: after a wipe-out.
        """
        self._solver.commit()

    def restart(self) -> None:
        """All groups back, the placement's own stacks, a depth of one shard."""
        self._solver.restart()

    def work(self, group: int) -> list[Part]:
        """What a group computes in a step from the next one on, in order. With one micro-batch these are
        the first ``depth`` types of its stack, of which it may own fewer; else the parts that it owns.

        Raises:
            SpareError: after a wipe-out, or no such group.
        """
        return [Part(*pair) for pair in self._solver.work(whole("group", group), 0)]

    def owner(self, type: int, part: int = 0) -> int:
        """Whose gradient of the part counts from the next step on."""
        return self._solver.owner(whole("type", type), whole("part", part))

    def holder(self, type: int, part: int = 0) -> int:
        """Whose gradient of the part counts in the running step: a survivor that computed or patches it."""
        return self._solver.holder(whole("type", type), whole("part", part))

    def owners(self) -> NDArray[np.int32]:
        """(N, m): ``owner`` of every part."""
        return self._solver.owners()

    def holders(self) -> NDArray[np.int32]:
        """(N, m): ``holder`` of every part."""
        return self._solver.holders()

    def _plan(self, core: _core.SparePlan) -> Plan:
        return Plan(
            outcome=core.outcome,
            depth=core.depth,
            survivors=core.survivors,
            new_work=core.new_work,
            patch_depth=core.patch_depth,
            lost_types=tuple(core.lost_types),
            patches=core.patches(),
            moves=core.moves(),
            digest=core.digest,
            _solver=self._solver,
            _version=core.version,
        )


def _list(groups: Groups) -> NDArray[np.int32]:
    if isinstance(groups, bool):
        raise SpareError(f"groups: found {groups}, expected integers")
    return integers("group", [groups] if isinstance(groups, (int, np.integer)) else groups)
