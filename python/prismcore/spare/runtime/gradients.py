"""Where a step's gradients are kept until they are summed.

Autograd adds into ``param.grad`` in place, so a *sheet* (one flat tensor for each data type and device,
with a view for each parameter) takes a micro-batch's gradients without a copy. Behind the gradients a
sheet has a *tail* of 32-bit floats, which is summed with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from prismcore.errors import SpareError

__all__ = ["BufferSheets", "Buffers", "GradientSheets", "Sheet", "sheets_of"]


@runtime_checkable
class Buffers(Protocol):
    """A trainer that adds gradients up in flat buffers of its own, not in ``grad``."""

    def flats(self) -> list[Tensor]:
        """The buffers that it has."""

    def write_to(self, flats: Sequence[Tensor]) -> Callable[[], Any]:
        """A call from which on it uses these, which are like its own, in place of those."""


class Sheet:
    """Gradients of all parameters: ``flats``, a view of them for each parameter, and the ``tail``."""

    __slots__ = ("flats", "tail", "views")

    def __init__(self, flats: list[Tensor], views: list[Tensor], tail: Tensor) -> None:
        self.flats = flats
        self.views = views
        self.tail = tail

    def zero(self) -> None:
        for flat in self.flats:
            flat.zero_()

    def take_share(self, sheets: Sequence[Sheet], parts: int) -> None:
        """Becomes the sum of ``sheets``, in their order, by ``parts``."""
        for index, flat in enumerate(self.flats):
            terms = [sheet.flats[index] for sheet in sheets]
            if not terms:
                flat.zero_()
            elif len(terms) == 1:
                torch.div(terms[0], parts, out=flat)
            else:
                torch.add(terms[0], terms[1], out=flat)
                for term in terms[2:]:
                    flat.add_(term)
                flat.div_(parts)


class GradientSheets:
    """Makes sheets for some parameters, and lets these write to one.

    Args:
        tail: length of a sheet's tail.

    Raises:
        SpareError: no parameter wants a gradient.
    """

    def __init__(self, params: Iterable[Tensor], *, tail: int) -> None:
        self._params = [param for param in params if param.requires_grad]
        if not self._params:
            raise SpareError("no parameter with requires_grad found; expected those that the optimizer steps")
        kinds = [(param.dtype, param.device) for param in self._params]
        self._tail = tail
        self._tail_kind = next((k for k in kinds if k[0] is torch.float32), (torch.float32, kinds[0][1]))
        self._kinds = list(dict.fromkeys([*kinds, self._tail_kind]))
        self._shown: Sheet | None = None

    def new(self) -> Sheet:
        """All zero."""
        sizes = dict.fromkeys(self._kinds, 0)
        places = []
        for param in self._params:
            kind = (param.dtype, param.device)
            places.append((kind, sizes[kind]))
            sizes[kind] += param.numel()
        sizes[self._tail_kind] += self._tail
        flats = {kind: torch.zeros(size, dtype=kind[0], device=kind[1]) for kind, size in sizes.items()}
        views = [
            flats[kind][at : at + param.numel()].view_as(param)
            for param, (kind, at) in zip(self._params, places, strict=True)
        ]
        with_tail = flats[self._tail_kind]
        return Sheet(list(flats.values()), views, with_tail[with_tail.numel() - self._tail :])

    def show(self, sheet: Sheet) -> None:
        """From here on parameters' ``grad`` is a view of this sheet."""
        for param, view in zip(self._params, sheet.views, strict=True):
            param.grad = view
        self._shown = sheet

    def take_in(self) -> Sheet:
        """The sheet that parameters write to; what came into gradients of their own (after
        ``zero_grad(set_to_none=True)``) is moved there.

        Raises:
            SpareError: gradients were made by ``backward(create_graph=True)``.
        """
        shown = self._shown
        assert shown is not None
        for param, view in zip(self._params, shown.views, strict=True):
            grad = param.grad
            if grad is view:
                continue
            if grad is not None:
                if grad.requires_grad:
                    raise SpareError(
                        "gradients with a graph of their own found (backward(create_graph=True)); expected "
                        "plain ones: take such derivatives by torch.autograd.grad"
                    )
                view.add_(grad)
            param.grad = view
        return shown


class _BufferSheet(Sheet):
    __slots__ = ("write_here",)

    def __init__(self, flats: list[Tensor], tail: Tensor, write_here: Callable[[], Any]) -> None:
        super().__init__([*flats, tail], [], tail)
        self.write_here = write_here


class BufferSheets:
    """As :class:`GradientSheets`, of a trainer's own buffers: these are the first sheet.

    Raises:
        SpareError: it has none.
    """

    def __init__(self, buffers: Buffers, *, tail: int) -> None:
        self._buffers = buffers
        self._tail = tail
        self._own: list[Tensor] | None = buffers.flats()
        if not self._own:
            raise SpareError("a trainer without gradient buffers found; expected parameters that are trained")
        self._like = [(flat.shape, flat.dtype, flat.device) for flat in self._own]
        self._shown: _BufferSheet | None = None

    def new(self) -> Sheet:
        """All zero."""
        own, self._own = self._own, None
        if own is None:
            own = [torch.zeros(shape, dtype=dtype, device=device) for shape, dtype, device in self._like]
        else:
            for flat in own:
                flat.zero_()
        tail = torch.zeros(self._tail, dtype=torch.float32, device=self._like[0][2])
        return _BufferSheet(own, tail, self._buffers.write_to(own))

    def show(self, sheet: Sheet) -> None:
        """From here on the trainer's gradients are those of this sheet."""
        assert isinstance(sheet, _BufferSheet)
        if self._shown is not sheet:
            sheet.write_here()
            self._shown = sheet

    def take_in(self) -> Sheet:
        """The sheet that the trainer writes to."""
        assert self._shown is not None
        return self._shown


def sheets_of(gradients: Iterable[Tensor] | Buffers, *, tail: int) -> GradientSheets | BufferSheets:
    """Of parameters, or of a trainer with buffers of its own."""
    if isinstance(gradients, Buffers):
        return BufferSheets(gradients, tail=tail)
    return GradientSheets(gradients, tail=tail)
