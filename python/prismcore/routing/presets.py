"""The presets of mock routing: how much each expert is wanted, when and by whom.

The eight kinds of imbalance that Megatron-LM issue 7488 asks for (W0 to W7).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prismcore.errors import RoutingError
from prismcore.routing.hashing import below
from prismcore.routing.parameters import ONE, Parameter, Value
from prismcore.routing.shape import RoutingShape

__all__ = ["PRESETS", "SEED", "Moment", "Parameter", "Preset"]

Ints = npt.NDArray[np.int64]


@dataclass(kw_only=True, slots=True, frozen=True)
class Moment:
    """When tokens are routed, and the seed."""

    seed: int
    step: int
    layer: int
    micro_batch: int


Weights = Callable[[Mapping[str, Value], RoutingShape, Moment], Ints]


@dataclass(kw_only=True, slots=True, frozen=True)
class Preset:
    """``weights`` gives int64 [1 or sources, experts] in thousandths of what a usual expert gets."""

    name: str
    help: str
    parameters: tuple[Parameter, ...]
    weights: Weights


SEED = Parameter(name="seed", kind="whole", default="0", help="moves what is rounded up and what is chosen")


def _heat(default: str) -> Parameter:
    return Parameter(
        name="heat",
        kind="heat",
        default=default,
        help="tokens of a hot expert over those of another, as far as a source has so many tokens",
    )


def _rank(what: str) -> Parameter:
    return Parameter(name="rank", kind="whole", default="0", help=f"expert-parallel rank {what}")


def _whole(values: Mapping[str, Value], name: str) -> int:
    value = values[name]
    assert isinstance(value, int)
    return value


def _even(shape: RoutingShape) -> Ints:
    return np.full((1, shape.experts), ONE, dtype=np.int64)


def _experts_of(values: Mapping[str, Value], shape: RoutingShape) -> slice:
    rank = _whole(values, "rank")
    if rank >= shape.ranks:
        raise RoutingError(f"rank {rank}, expected below the {shape.ranks} expert-parallel ranks of the job")
    return slice(rank * shape.experts_per_rank, (rank + 1) * shape.experts_per_rank)


def _balanced(values: Mapping[str, Value], shape: RoutingShape, moment: Moment) -> Ints:
    return _even(shape)


def _hot_experts(values: Mapping[str, Value], shape: RoutingShape, moment: Moment) -> Ints:
    experts = values["experts"]
    assert isinstance(experts, tuple)
    if max(experts) >= shape.experts:
        raise RoutingError(f"expert {max(experts)}, expected below the {shape.experts} experts of the layer")
    weights = _even(shape)
    weights[0, list(experts)] = _whole(values, "heat")
    return weights


def _hot_rank(values: Mapping[str, Value], shape: RoutingShape, moment: Moment) -> Ints:
    weights = _even(shape)
    weights[0, _experts_of(values, shape)] = _whole(values, "heat")
    return weights


def _spread_heat(values: Mapping[str, Value], shape: RoutingShape, moment: Moment) -> Ints:
    each = shape.experts_per_rank
    if _whole(values, "hot") > each:
        raise RoutingError(f"hot {values['hot']}, expected at most the {each} experts of a rank")
    ranks = np.arange(shape.ranks)
    first = below(each, moment.seed, moment.layer, ranks)
    weights = _even(shape)
    for i in range(_whole(values, "hot")):
        weights[0, ranks * each + (first + i) % each] = _whole(values, "heat")
    return weights


def _ragged_source(values: Mapping[str, Value], shape: RoutingShape, moment: Moment) -> Ints:
    sources = np.arange(shape.sources)[:, None]
    experts = np.arange(shape.experts)[None, :]
    above = _whole(values, "heat") - ONE + 1
    return ONE + below(above, moment.seed, moment.step, moment.layer, moment.micro_batch, sources, experts)


def _empty_rank(values: Mapping[str, Value], shape: RoutingShape, moment: Moment) -> Ints:
    weights = _even(shape)
    weights[0, _experts_of(values, shape)] = 0
    others = shape.experts - shape.experts_per_rank
    if others < shape.topk:
        raise RoutingError(
            f"top-{shape.topk} with {others} experts on other ranks, expected at least {shape.topk} there"
        )
    return weights


def _rotating_hotspot(values: Mapping[str, Value], shape: RoutingShape, moment: Moment) -> Ints:
    turn = moment.step // _whole(values, "period")
    local = turn // shape.ranks % shape.experts_per_rank
    weights = _even(shape)
    weights[0, turn % shape.ranks * shape.experts_per_rank + local] = _whole(values, "heat")
    return weights


def _burst(values: Mapping[str, Value], shape: RoutingShape, moment: Moment) -> Ints:
    weights = _even(shape)
    when = (moment.seed, moment.step, moment.micro_batch)
    if below(_whole(values, "period"), *when)[0] == 0:
        weights[0, below(shape.experts, *when, moment.layer)[0]] = _whole(values, "heat")
    return weights


PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(name="balanced", help="every expert gets the same", parameters=(SEED,), weights=_balanced),
        Preset(
            name="hot-experts",
            help="some experts get more than the others",
            parameters=(
                Parameter(name="experts", kind="list", default="0", help="the hot ones, of every layer"),
                _heat("4"),
                SEED,
            ),
            weights=_hot_experts,
        ),
        Preset(
            name="hot-rank",
            help="all experts of one rank get more than the others",
            parameters=(_rank("with the hot experts"), _heat("4"), SEED),
            weights=_hot_rank,
        ),
        Preset(
            name="spread-heat",
            help="as many hot experts on every rank: ranks get the same, experts do not",
            parameters=(
                Parameter(name="hot", kind="whole", default="1", help="hot experts on a rank", least=1),
                _heat("4"),
                SEED,
            ),
            weights=_spread_heat,
        ),
        Preset(
            name="ragged-source",
            help="every source has wishes of its own, new ones in each layer and micro-batch",
            parameters=(_heat("4"), SEED),
            weights=_ragged_source,
        ),
        Preset(
            name="empty-rank",
            help="the experts of one rank get nothing",
            parameters=(_rank("without tokens"), SEED),
            weights=_empty_rank,
        ),
        Preset(
            name="rotating-hotspot",
            help="one hot expert, which moves to the next rank, and when all had it to their next expert",
            parameters=(
                Parameter(name="period", kind="whole", default="1", help="steps it stays", least=1),
                _heat("4"),
                SEED,
            ),
            weights=_rotating_hotspot,
        ),
        Preset(
            name="burst",
            help="balanced, but in some micro-batches one expert of each layer, not always the same, is hot",
            parameters=(
                Parameter(
                    name="period",
                    kind="whole",
                    default="8",
                    help="one in so many micro-batches, at random",
                    least=1,
                ),
                _heat("16"),
                SEED,
            ),
            weights=_burst,
        ),
    )
}
