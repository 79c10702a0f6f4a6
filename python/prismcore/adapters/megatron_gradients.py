"""Megatron-core 0.16.1 in a group of a SPARe training: its gradient buffers, and micro-batches one lot at a
time.

Megatron adds gradients up in flat buffers (``_ParamAndGradBuffer.grad_data``; ``param.main_grad`` are views
of them), reduces them over data-parallel replicas and then inside the model (``finalize_model_grads``). A
group is one replica here: its data-parallel size is 1. The session sums the buffers over the groups;
Megatron's own finalisation, clipping and optimizer come after that and are as ever: all that finalisation
does is linear, so that it may follow the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from prismcore.errors import SpareError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["MegatronGradients"]


class MegatronGradients:
    """The gradients of one model chunk, for ``prismcore.spare.Session(params=...)``.

    ::

        gradients = MegatronGradients(model)  # Megatron's DistributedDataParallel
        session = Session(options, params=gradients, state={"model": model, "optimizer": optimizer})
        while session.step_number < steps:
            for works in session.lots():
                losses = gradients.compute(
                    get_forward_backward_func(),
                    [data.micro_batch(work) for work in works],
                    seeds=[seed_for(seed, work) for work in works],
                    forward_step_func=forward_step,
                    seq_length=seq_length,
                    micro_batch_size=micro_batch_size,
                )
                for work, loss in zip(works, losses):
                    session.accumulate(work, loss)
            gradients.finalize()
            optimizer.step()

    Takes ``finalize_model_grads_func`` out of the model's ``config``; :meth:`finalize` calls it (default:
    Megatron's). ``grad_scale_func`` stays as it is.

    Raises:
        SpareError: what Megatron is set up to do with gradients does not go with it; each is named.
    """

    def __init__(self, model: Any) -> None:
        _check(model)
        self._model = model
        self._config = model.config
        self._finalize: Callable[..., Any] | None = model.config.finalize_model_grads_func
        self._config.finalize_model_grads_func = None

    def flats(self) -> list[Tensor]:
        """Megatron's own buffers, with their padding."""
        return [buffer.grad_data for buffer in self._buffers()]

    def write_to(self, flats: Sequence[Tensor]) -> Callable[[], Any]:
        """A call that makes Megatron use ``flats``: buffers, buckets and ``main_grad``."""
        places: list[tuple[Any, str, Tensor]] = []
        for buffer, flat in zip(self._buffers(), flats, strict=True):
            old = buffer.grad_data
            places.append((buffer, "grad_data", flat))
            places += [
                (bucket, "grad_data", _moved(bucket.grad_data, old, flat)) for bucket in buffer.buckets
            ]
            places += [(param, "main_grad", _moved(param.main_grad, old, flat)) for param in buffer.params]

        def write_here() -> None:
            for owner, name, tensor in places:
                setattr(owner, name, tensor)

        return write_here

    def compute(
        self,
        forward_backward_func: Callable[..., Any],
        batches: Sequence[Any],
        *,
        seeds: Sequence[int] | None = None,
        **options: Any,
    ) -> list[Any]:
        """Forward and backward of some micro-batches, by Megatron's schedule for the model; the sum of their
        own mean gradients is added to the buffers. Returns what the loss function reported of each; None
        on ranks that have no loss.

        Args:
            forward_backward_func: of ``get_forward_backward_func()``.
            batches: ``forward_step_func`` finds them in its iterator; it takes one in each call.
            seeds: of the random numbers of each micro-batch, drawn as by ``model_parallel_cuda_manual_seed``;
                None: they are left alone.
            options: of ``forward_backward_func``: ``forward_step_func``, ``seq_length``,
                ``micro_batch_size`` and others.
        """
        count, scale = len(batches), self._config.grad_scale_func

        def whole(loss: Any) -> Any:  # the schedule divides by the number of micro-batches
            return (loss if scale is None else scale(loss)) * count

        self._config.grad_scale_func = whole if count > 1 else scale
        for param in self._model.params_with_grad:
            param.grad = None  # the optimizer has left main_grad there
            param.grad_added_to_main_grad = False
        try:
            reported = forward_backward_func(
                model=[self._model],
                data_iterator=_seeded(batches, seeds),
                num_microbatches=count,
                forward_only=False,
                **options,
            )
        finally:
            self._config.grad_scale_func = scale
        return list(reported) if reported else [None] * count

    def finalize(self) -> None:
        """Megatron's finalisation inside the group, once a step, when the session has summed."""
        if self._finalize is None:
            from megatron.core.distributed import finalize_model_grads

            self._finalize = finalize_model_grads
        self._finalize([self._model])

    def _buffers(self) -> list[Any]:
        return [*self._model.buffers, *self._model.expert_parallel_buffers]


def _check(model: Any) -> None:
    if not hasattr(model, "ddp_config") or not hasattr(model, "expert_parallel_buffers"):
        raise SpareError(f"{type(model).__name__} found, expected Megatron's DistributedDataParallel")
    config, ddp = model.config, model.ddp_config
    wrong = {
        f"data-parallel size {model.dp_group.size()} (expected 1: a group is one replica)": (
            model.dp_group.size() != 1
        ),
        "overlap_grad_reduce": ddp.overlap_grad_reduce,
        "use_distributed_optimizer (there is nothing to share out in a group)": ddp.use_distributed_optimizer,
        "calculate_per_token_loss (the mean over a step's tokens needs the other groups')": (
            config.calculate_per_token_loss
        ),
        "virtual_pipeline_model_parallel_size (lots of any size do not fill it)": bool(
            config.virtual_pipeline_model_parallel_size
        ),
        "moe_router_enable_expert_bias (its counts are not summed over groups)": getattr(
            config, "moe_router_enable_expert_bias", False
        ),
    }
    found = [name for name, is_there in wrong.items() if is_there]
    if found:
        raise SpareError(f"Megatron is set up with {', '.join(found)}: does not go with SPARe; switch it off")


def _moved(view: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """The same stretch of another buffer."""
    begin = view.storage_offset() - old.storage_offset()
    return new[begin : begin + view.numel()].view(view.shape)


def _seeded(batches: Sequence[Any], seeds: Sequence[int] | None) -> Iterator[Any]:
    if seeds is None:
        yield from batches
        return
    import torch
    from megatron.core import parallel_state, tensor_parallel

    stage = parallel_state.get_pipeline_model_parallel_rank()
    for batch, seed in zip(batches, seeds, strict=True):
        torch.manual_seed(seed)
        tensor_parallel.model_parallel_cuda_manual_seed((seed + 100 * stage) % (1 << 62))
        yield batch
