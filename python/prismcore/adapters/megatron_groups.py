"""Megatron-core: what its process groups are called (0.16.1, ``megatron/core/parallel_state.py``)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from prismcore.adapters.data_parallel import DataParallel

__all__ = ["data_parallel", "describe_rank", "is_megatron"]

_PIPELINE = "PIPELINE_MODEL_PARALLEL_GROUP"
_OTHERS = {
    "TENSOR_MODEL_PARALLEL_GROUP": "tensor rank",
    "CONTEXT_PARALLEL_GROUP": "context rank",
    "EXPERT_MODEL_PARALLEL_GROUP": "expert rank",
    "DATA_PARALLEL_GROUP": "data rank",
}

# Over these, gradients are reduced, and the distributed optimizer gathers parameters.
_GRADIENTS = frozenset(
    {
        "DATA_PARALLEL_GROUP",
        "DATA_PARALLEL_GROUP_WITH_CP",
        "DATA_PARALLEL_GROUP_WITH_CP_AG",
        "INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP",
        "EXPERT_DATA_PARALLEL_GROUP",
    }
)


def data_parallel(descriptions: Collection[str]) -> DataParallel | None:
    """Megatron's data-parallel groups among ``descriptions``; None where there are none."""
    found = _GRADIENTS & set(descriptions)
    return DataParallel(trainer="Megatron", descriptions=found, gathers=True) if found else None


def is_megatron(descriptions: Collection[str]) -> bool:
    """Whether one of these groups has a name that Megatron gives."""
    return not {_PIPELINE, *_OTHERS, *_GRADIENTS}.isdisjoint(descriptions)


def describe_rank(places: Mapping[str, tuple[int, int]]) -> str:
    """``pipeline stage 3 of 16, tensor rank 0 of 8, ...``; empty where these are not Megatron's groups.

    ``places``: position and size by group description.
    """
    if _PIPELINE not in places:
        return ""
    stage, stages = places[_PIPELINE]
    parts = [f"pipeline stage {stage} of {stages}"]
    parts += [
        f"{text} {places[name][0]} of {places[name][1]}"
        for name, text in _OTHERS.items()
        if name in places and places[name][1] > 1
    ]
    return ", ".join(parts)
