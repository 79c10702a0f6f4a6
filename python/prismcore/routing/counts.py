"""The counts that a rule gives."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from prismcore.errors import RoutingError
from prismcore.routing.apportion import apportion
from prismcore.routing.hashing import below
from prismcore.routing.presets import PRESETS, Moment
from prismcore.routing.rule import Rule
from prismcore.routing.shape import RoutingShape

__all__ = ["counts"]


def counts(
    rule: Rule, shape: RoutingShape, *, step: int, layer: int, micro_batch: int
) -> npt.NDArray[np.int64]:
    """Tokens that each source sends to each expert, int64 [sources, experts].

    Row s is a pure function of the rule, the shape, ``step``, ``layer``, ``micro_batch`` (all counted
    from 0, or as the caller likes: they are only told apart) and s: integer arithmetic alone, the same
    on every machine. Each row adds up to ``shape.tokens * shape.topk``, and no entry is above
    ``shape.tokens``, since a token goes to different experts.

    Raises :class:`RoutingError` where the rule asks for what the shape does not have (an expert, a
    rank), or where numbers leave 64 bits.
    """
    moment = Moment(seed=rule.seed, step=step, layer=layer, micro_batch=micro_batch)
    try:
        weights = PRESETS[rule.preset].weights(dict(rule.values), shape, moment)
        wanted = np.broadcast_to(weights, (shape.sources, shape.experts))
        # Sources round up at different experts, evenly spread, so that their sums differ little.
        whole = wanted.sum(axis=1)
        first = below(1 << 62, rule.seed, step, layer, micro_batch) % whole
        phase = first + np.arange(shape.sources) * (whole // shape.sources)
        return apportion(wanted, shape.tokens * shape.topk, shape.tokens, phase)
    except RoutingError as error:
        raise RoutingError(f"routing {rule.preset}: {error}") from None
