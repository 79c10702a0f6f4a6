"""The step that runs: what of it is computed here, and where its gradients are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from prismcore.errors import SpareError
from prismcore.spare.reorderer import Part
from prismcore.spare.runtime.gradients import Buffers, Sheet, sheets_of
from prismcore.spare.runtime.tally import Tally

__all__ = ["RunningStep"]


class RunningStep:
    """Gradients that belong to one group alone are added up in one sheet. A part that another group
    computes as well, or whose place in the sum matters (``apart``), has a sheet of its own.

    The sums go to ``out``; what they are made of stays as it is until the next step, so that they can be
    made again.
    """

    def __init__(self, params: Iterable[Tensor] | Buffers, *, groups: int, micro_batches: int) -> None:
        self._tally = Tally(groups, micro_batches)
        sheets = sheets_of(params, tail=self._tally.length)
        self._sheets = sheets
        self._together = sheets.new()
        self._pool: list[Sheet] = []
        self._apart: dict[Part, Sheet] | None = None
        self.out = sheets.new()
        self._done: set[Part] = set()

    def begin(self, *, apart: bool) -> None:
        """A new step: nothing is computed."""
        if self._apart is not None:
            self._pool += self._apart.values()
        self._apart = {} if apart else None
        if not apart:
            self._pool.clear()
        self._together.zero()
        self._done.clear()

    @property
    def is_apart(self) -> bool:
        """Each part has a sheet of its own."""
        return self._apart is not None

    def open(self, part: Part) -> None:
        """Autograd adds into this part's sheet from here on."""
        if self._apart is None:
            self._sheets.show(self._together)
            return
        sheet = self._apart.get(part) or (self._pool.pop() if self._pool else self._sheets.new())
        sheet.zero()
        self._apart[part] = sheet
        self._sheets.show(sheet)

    def close(self, part: Part, loss: Tensor | float) -> None:
        """The part is computed."""
        self._tally.enter(self._sheets.take_in().tail, part, loss)
        self._done.add(part)

    def is_done(self, part: Part) -> bool:
        return part in self._done

    def given(self, counts: Sequence[Part]) -> list[Sheet]:
        """Sheets whose sum is what this group gives for the parts that count here."""
        if self._apart is None:
            if self._done != set(counts):
                raise SpareError(
                    f"parts {sorted(self._done)} are added up, expected {sorted(counts)}: "
                    "this is a fault of prismcore"
                )
            return [self._together]
        return [self._apart[part] for part in counts] or [self._nothing()]

    def by_part(self, counts: Sequence[Part]) -> dict[Part, Sheet]:
        assert self._apart is not None
        return {part: self._apart[part] for part in counts}

    @property
    def num_done(self) -> int:
        return len(self._done)

    def mean_loss(self) -> float:
        """Of the summed step. Raises SpareError where not every micro-batch counts once."""
        return self._tally.mean_loss(self.out.tail)

    def show_mean(self) -> None:
        """Parameters' gradients become the sum over all micro-batches by their number."""
        for flat in self.out.flats:
            flat.div_(self._tally.parts)
        self._sheets.show(self.out)

    def abandon_sum(self) -> None:
        """Somebody who is stopped may still write into what the sum was to be: take another."""
        self.out = self._sheets.new()

    def _nothing(self) -> Sheet:
        self._together.zero()
        return self._together
