"""A routing rule: a preset with its parameters, and its text."""

from __future__ import annotations

from dataclasses import dataclass

from prismcore.errors import RoutingError
from prismcore.routing.parameters import Value
from prismcore.routing.presets import PRESETS

__all__ = ["Rule", "parse_rule"]


@dataclass(slots=True, frozen=True)
class Rule:
    """Made by :func:`parse_rule`. ``values`` has one entry for each parameter of the preset, in its
    order; heat is in thousandths."""

    preset: str
    values: tuple[tuple[str, Value], ...]

    @property
    def seed(self) -> int:
        seed = dict(self.values)["seed"]
        assert isinstance(seed, int)
        return seed

    def __str__(self) -> str:
        """``hot-experts:experts=0,heat=4,seed=0``: all parameters, as :func:`parse_rule` reads them."""
        parameters = PRESETS[self.preset].parameters
        parts = (f"{p.name}={p.text(v)}" for p, (_, v) in zip(parameters, self.values, strict=True))
        return f"{self.preset}:{','.join(parts)}"


def parse_rule(text: str) -> Rule:
    """``PRESET[:name=value,...]``; parameters that are not named take their defaults.

    Raises :class:`RoutingError`, in one line, for an unknown preset or parameter and for a value that
    cannot be.
    """
    name, colon, rest = text.strip().partition(":")
    preset = PRESETS.get(name)
    if preset is None:
        raise RoutingError(f"routing preset {name!r}: expected one of {', '.join(PRESETS)}")
    known = {parameter.name: parameter for parameter in preset.parameters}
    given: dict[str, Value] = {}
    for part in rest.split(",") if colon else ():
        key, equals, value = part.partition("=")
        key = key.strip()
        if key not in known or not equals:
            expected = ", ".join(f"{p}=..." for p in known)
            raise RoutingError(f"routing {name}: found {part!r}, expected {expected}")
        if key in given:
            raise RoutingError(f"routing {name}: found {key} twice, expected it once")
        try:
            given[key] = known[key].parse(value.strip())
        except RoutingError as error:
            raise RoutingError(f"routing {name}: {error}") from None
    values = tuple((p.name, given.get(p.name, p.parse(p.default))) for p in preset.parameters)
    return Rule(name, values)
