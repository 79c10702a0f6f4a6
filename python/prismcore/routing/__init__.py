"""Mock routing for mixtures of experts: how many tokens every rank sends to every expert.

Gates compute nothing on a virtual GPU, so that a rule says what they would have chosen. A rule is a
preset and its parameters; :func:`counts` is a pure function of it, the same on every rank and machine.
The presets and their parameters stand in ``docs/guide-experts.md``.
"""

from __future__ import annotations

from prismcore.routing.counts import counts
from prismcore.routing.presets import PRESETS, Parameter, Preset
from prismcore.routing.rule import Rule, parse_rule
from prismcore.routing.shape import RoutingShape

__all__ = ["PRESETS", "Parameter", "Preset", "RoutingShape", "Rule", "counts", "parse_rule"]
