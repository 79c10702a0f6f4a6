"""The step that runs: what of it is computed here, and where its gradients are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from prismcore.errors import SpareError
from prismcore.spare.reorderer import Part
from prismcore.spare.runtime.gradients import Buffers, Sheet, sheets_of
from prismcore.spare.runtime.tally import Tally, loss_of

__all__ = ["RunningStep"]


class RunningStep:
    """Gradients that belong to one group alone are added up in one sheet. A part that another group
    computes as well, or whose place in the sum matters (``apart``), has a sheet of its own.

    The mean goes to ``out``; what it is made of stays as it is until the next step, so that it can be made
    again.
    """

    def __init__(self, params: Iterable[Tensor] | Buffers, *, groups: int, micro_batches: int) -> None:
        self._tally = Tally(groups, micro_batches)
        sheets = sheets_of(params, tail=self._tally.length)
        self._sheets = sheets
        self._together = sheets.new()
        self._pool: list[Sheet] = []
        self._apart: dict[Part, Sheet] | None = None
        self.out = sheets.new()
        self._step = 0
        self._losses: dict[Part, Tensor | float] = {}  # of parts that are computed

    def begin(self, step: int, *, apart: bool) -> None:
        """A new step: nothing is computed."""
        self._step = step
        if self._apart is not None:
            self._pool += self._apart.values()
        self._apart = {} if apart else None
        self._losses.clear()
        if not apart:
            self._pool.clear()
            self._together.zero()
            self._sheets.show(self._together)

    @property
    def is_apart(self) -> bool:
        """Each part has a sheet of its own."""
        return self._apart is not None

    def open(self, part: Part) -> None:
        """Autograd adds into this part's sheet from here on."""
        if self._apart is None:
            return  # into that of all parts, since begin()
        sheet = self._apart.get(part) or (self._pool.pop() if self._pool else self._sheets.new())
        sheet.zero()
        self._apart[part] = sheet
        self._sheets.show(sheet)

    def close(self, part: Part, loss: Tensor | float) -> None:
        """The part is computed."""
        copied = loss_of(loss)
        self._sheets.take_in()
        self._losses[part] = copied

    def is_done(self, part: Part) -> bool:
        return part in self._losses

    def give(self, counts: Sequence[Part], *, boundary_wanted: bool) -> None:
        """``out`` becomes what this group gives of the mean: its gradients of the parts that count here, by
        the number of all parts. Divided on the way there, so that the copy costs no pass of its own."""
        if self._apart is None:
            if self._losses.keys() != set(counts):
                raise SpareError(
                    f"parts {sorted(self._losses)} are added up, expected {sorted(counts)}: "
                    "this is a fault of prismcore"
                )
            self.out.take_share([self._together], self._tally.parts)
        else:
            self.out.take_share([self._apart[part] for part in counts], self._tally.parts)
        losses = {part: self._losses[part] for part in counts}
        self._tally.enter(self.out.tail, losses, step=self._step, boundary_wanted=boundary_wanted)

    def by_part(self, counts: Sequence[Part]) -> dict[Part, Sheet]:
        """Sheets of the parts that count here, whose sum over all groups is to go to ``out``."""
        assert self._apart is not None
        for part in counts:
            self._tally.enter(self._apart[part].tail, {part: self._losses[part]}, step=self._step)
        return {part: self._apart[part] for part in counts}

    @property
    def num_done(self) -> int:
        return len(self._losses)

    def read(self) -> tuple[float, bool]:
        """Mean loss of the summed step, and whether any group wants a boundary to join at.

        Raises:
            SpareError: not every micro-batch counts once.
        """
        return self._tally.read(self.out.tail, step=self._step)

    def divide_sum(self) -> None:
        """``out`` becomes the mean of what :meth:`by_part` gave the parts of. Once it is read, and before the
        step counts as held: whoever is broken off in here makes the sum again."""
        self.out.take_share([self.out], self._tally.parts)

    def show_mean(self) -> None:
        """Parameters' gradients become the mean over all micro-batches."""
        self._sheets.show(self.out)

    def abandon_sum(self) -> None:
        """Somebody who is stopped may still write into what the sum was to be: take another."""
        self.out = self._sheets.new()
