"""Parameters of presets: their texts, values and limits."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Literal

from prismcore.errors import RoutingError
from prismcore.rank_list import parse_ranks

__all__ = ["ONE", "Parameter", "Value"]

#: Weight of an expert that is neither hot nor empty: heat counts in thousandths.
ONE = 1000

_MOST_HEAT = 1000
_MOST_WHOLE = (1 << 63) - 1
_MOST_EXPERTS = 1 << 16

Value = int | tuple[int, ...]


@dataclass(kw_only=True, slots=True, frozen=True)
class Parameter:
    """``heat``: a decimal number, kept in thousandths. ``whole``: an integer from ``least``. ``list``:
    numbers and ranges joined by ``+``, such as ``0+4-7``."""

    name: str
    kind: Literal["heat", "whole", "list"]
    default: str
    help: str
    least: int = 0

    def expected(self) -> str:
        if self.kind == "heat":
            return f"a number from 1 to {_MOST_HEAT}, of at most three decimals"
        if self.kind == "list":
            return "numbers and ranges joined by +, such as 0+4-7"
        return f"a whole number of at least {self.least}"

    def parse(self, text: str) -> Value:
        """Raises :class:`RoutingError` with what is expected, without the preset's name."""
        value = self._value(text)
        if value is None:
            raise RoutingError(f"{self.name} {text!r}, expected {self.expected()}")
        return value

    def _value(self, text: str) -> Value | None:
        if self.kind == "list":
            try:
                return tuple(parse_ranks(text.replace(",", "?").replace("+", ","), most=_MOST_EXPERTS - 1))
            except ValueError:
                return None
        if self.kind == "whole":
            plain = text.isascii() and text.isdecimal() and self.least <= int(text) <= _MOST_WHOLE
            return int(text) if plain else None
        try:
            heat = Decimal(text) * ONE
        except InvalidOperation:
            return None
        if not heat.is_finite() or not ONE <= heat <= _MOST_HEAT * ONE or heat != heat.to_integral_value():
            return None
        return int(heat)

    def text(self, value: Value) -> str:
        """What :meth:`parse` makes ``value`` of."""
        if isinstance(value, tuple):
            return "+".join(map(str, value))
        if self.kind == "heat":
            return f"{Decimal(value) / ONE:f}"
        return str(value)
