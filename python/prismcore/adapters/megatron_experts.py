"""Mock routing of Megatron-core's mixtures of experts (0.16.1, ``megatron/core/transformer/moe``).

Gates compute nothing on a virtual GPU, so that the dispatchers read counts that nobody wrote. Here a
rule writes them: the bytes of the count tensors after Megatron's own kernels and collectives were
recorded, and the answers to the reads of how many elements ``masked_select`` found. No op is added,
and none left out.

Source s of a layer is the rank at position s of the expert-and-tensor-parallel group: ranks of other
such groups route alike, as data-parallel replicas do on average.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from prismcore.adapters.forward_count import ForwardCount
from prismcore.adapters.imports import when_imported
from prismcore.errors import CollectError
from prismcore.routing import RoutingShape, Rule, counts

__all__ = ["Device", "ExpertRouting"]

Ints = npt.NDArray[np.int64]

_MODULE = "megatron.core.transformer.moe.moe_layer"
_LAYER = "_prismcore_layer"
_COUNT = "_prismcore_forwards"


class Device(Protocol):
    """What the rule's bytes go to; neither call is an op of the rank."""

    def write(self, address: int, data: bytes, stream: int) -> None:
        """In stream order, as if a kernel had written them."""

    def answer_reads(self, answers: Sequence[bytes]) -> None:
        """Device-to-host copies of this thread give the answer of their length, until the next call."""


class ExpertRouting:
    """A rule at work in one rank."""

    def __init__(self, rule: Rule, device: Device, step: Callable[[], int]) -> None:
        """``step``: iterations that have ended."""
        self._rule = rule
        self._device = device
        self._step = step
        self._layers: set[int] = set()
        self._skewed = False
        self._group: str | None = None

    def install(self) -> None:
        """Acts on Megatron's module as soon as it is imported; a program without experts runs as ever."""
        when_imported(_MODULE, self._patch)

    def report(self) -> dict[str, Any] | None:
        """None where nothing was routed. ``group``: torch's name of the group whose positions are the
        sources, None where there is one source alone. ``skewed``: some experts, or some sources, had
        other counts than others."""
        if not self._layers:
            return None
        return {
            "rule": str(self._rule),
            "layers": sorted(self._layers),
            "skewed": self._skewed,
            "group": self._group,
        }

    def _patch(self, module: ModuleType) -> None:
        self._know_layers(module.MoELayer)
        all_to_all = module.MoEAlltoAllTokenDispatcher
        self._wrap(all_to_all, "preprocess", self._preprocess)
        self._wrap(all_to_all, "dispatch_preprocess", self._then_answer_no_more)
        self._wrap(module.MoEAllGatherTokenDispatcher, "dispatch_postprocess", self._gathered)

    @staticmethod
    def _wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
        original = getattr(owner, name)

        def method(dispatcher: Any, *args: Any, **options: Any) -> Any:
            return around(dispatcher, original, *args, **options)

        setattr(owner, name, method)

    @staticmethod
    def _know_layers(owner: Any) -> None:
        made = owner.__init__

        def make(layer: Any, *args: Any, **options: Any) -> None:
            made(layer, *args, **options)
            _refuse_what_cannot_be_routed(layer)
            # Plain attributes, so that a copied model routes too.
            setattr(layer.token_dispatcher, _LAYER, layer)
            setattr(layer.token_dispatcher, _COUNT, ForwardCount())

        owner.__init__ = make

    def _preprocess(self, dispatcher: Any, original: Callable[..., Any], routing_map: Any) -> Any:
        tokens_of_local_experts = original(dispatcher, routing_map)
        if dispatcher.drop_and_pad:  # padded to its capacity: nothing depends on the gate
            return tokens_of_local_experts
        table = self._table(dispatcher, int(routing_map.shape[0]))
        own = table[_source_of(dispatcher)]
        ranks, tensor, each = dispatcher.ep_size, dispatcher.tp_size, dispatcher.num_local_experts
        local = _local(table, dispatcher).reshape(ranks, tensor, each).transpose(1, 0, 2)
        if ranks > 1 or tensor > 1:
            self._write(dispatcher.input_splits, own.reshape(ranks, each).sum(axis=1))
            self._write(dispatcher.output_splits, local[dispatcher.tp_rank].sum(axis=1))
            self._write(dispatcher.output_splits_tp, local.sum(axis=(1, 2)))
        if each > 1:
            self._write(dispatcher.num_global_tokens_per_local_expert, local.reshape(-1, each))
        self._write(tokens_of_local_experts, local.sum(axis=(0, 1)))
        if hasattr(dispatcher.num_out_tokens, "data_ptr"):
            self._write(dispatcher.num_out_tokens, own.sum())
        self._device.answer_reads([_selected(own)])
        return tokens_of_local_experts

    def _then_answer_no_more(
        self, dispatcher: Any, original: Callable[..., Any], *args: Any, **options: Any
    ) -> Any:
        try:
            return original(dispatcher, *args, **options)
        finally:
            self._device.answer_reads([])

    def _gathered(self, dispatcher: Any, original: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """The all-gather dispatcher reads the tokens of its experts, then counts them twice."""
        sources = dispatcher.ep_size * dispatcher.tp_size
        table = self._table(dispatcher, int(dispatcher.routing_map.shape[0]) // sources)
        local = _local(table, dispatcher)
        self._device.answer_reads([local.sum(axis=0).tobytes(), _selected(local)])
        return self._then_answer_no_more(dispatcher, original, *args, **options)

    def _table(self, dispatcher: Any, tokens: int) -> Ints:
        """Tokens from each source to each expert, int64 [sources, experts], after dropping."""
        config = dispatcher.config
        layer = getattr(dispatcher, _LAYER, None)
        shape = RoutingShape(
            tokens=tokens,
            topk=config.moe_router_topk,
            experts=config.num_moe_experts,
            ranks=dispatcher.ep_size,
            sources=dispatcher.ep_size * dispatcher.tp_size,
        )
        number = int(getattr(layer, "layer_number", None) or 0)
        step, micro_batch = self._moment(dispatcher, training=getattr(layer, "training", True))
        table = counts(self._rule, shape, step=step, layer=number, micro_batch=micro_batch)
        if config.moe_expert_capacity_factor is not None:
            table = np.minimum(table, _capacity(config, shape))
        self._layers.add(number)
        self._skewed = self._skewed or bool((table != table[:1, :1]).any())
        if shape.sources > 1:
            self._group = dispatcher.tp_ep_group.group_name
        return table

    def _moment(self, dispatcher: Any, *, training: bool) -> tuple[int, int]:
        import torch

        count: ForwardCount = getattr(dispatcher, _COUNT)
        step = self._step()
        if torch._C._current_graph_task_id() != -1:  # inside a backward pass
            return step, count.again(step)
        return step, count.forward(step, training=training, gradients=torch.is_grad_enabled())

    def _write(self, tensor: Any, values: Any) -> None:
        import torch

        data = np.ascontiguousarray(values, dtype=np.int64)
        if not (
            tensor.is_cuda
            and tensor.dtype == torch.int64
            and tensor.is_contiguous()
            and tensor.numel() == data.size
        ):
            raise CollectError(
                f"mock routing: found counts of {tensor.numel()} {tensor.dtype} on {tensor.device}, expected "
                f"{data.size} torch.int64 on the device, as in megatron-core 0.16.1"
            )
        stream = torch.cuda.current_stream(tensor.device).cuda_stream
        self._device.write(tensor.data_ptr(), data.tobytes(), stream)


def _refuse_what_cannot_be_routed(layer: Any) -> None:
    config = layer.config
    kind = config.moe_token_dispatcher_type
    if kind not in ("alltoall", "allgather"):
        raise CollectError(
            f"layer {layer.layer_number}: found the token dispatcher {kind!r}, whose libraries (DeepEP, "
            "HybridEP) are not stood in for; expected alltoall or allgather"
        )
    if config.moe_router_padding_for_quantization:
        raise CollectError(
            f"layer {layer.layer_number}: found moe_router_padding_for_quantization, which mock routing does "
            "not know; expected it to be off"
        )


def _source_of(dispatcher: Any) -> int:
    rank = dispatcher.local_expert_indices[0] // dispatcher.num_local_experts
    return int(rank * dispatcher.tp_size + dispatcher.tp_rank)


def _local(table: Ints, dispatcher: Any) -> Ints:
    """Columns of the rank's own experts: int64 [sources, local experts]."""
    first = dispatcher.local_expert_indices[0]
    return table[:, first : first + dispatcher.num_local_experts]


def _selected(table: Ints) -> bytes:
    """How many elements were selected, as ``nonzero`` reads it: a 32-bit count."""
    return np.asarray(table.sum(), dtype=np.int32).tobytes()


def _capacity(config: Any, shape: RoutingShape) -> int:
    from megatron.core.transformer.moe.moe_utils import get_capacity

    return int(
        get_capacity(
            num_tokens=shape.tokens * shape.topk,
            num_experts=shape.experts,
            capacity_factor=config.moe_expert_capacity_factor,
        )
    )
