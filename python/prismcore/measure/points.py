"""What is measured of a layer: calls of torch, each with the kernels that a job's would launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from prismcore.measure.shapes import LayerShape

__all__ = ["Call", "Point", "points"]

Call = Callable[[], object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """``make`` allocates what the calls need and gives them by name: ``forward``, ``backward``, ...

    ``product``: m, n, k, batch of a call that is one matrix product, as a column-major library sees it.
    """

    name: str
    family: str
    make: Callable[[], dict[str, Call]]
    product: tuple[int, int, int, int] | None = None


def points(shape: LayerShape) -> Iterator[Point]:
    """The points of a layer, those that take most of an iteration first."""
    dtype = getattr(torch, "float32" if shape.dtype == "tf32" else shape.dtype)
    yield from _products(shape, dtype)
    yield from _attention(shape, dtype)
    yield from _rows(shape, dtype)
    yield from _elements(shape, dtype)
    yield from _vocabulary(shape, dtype)
    yield from _optimizer(shape, dtype)
    yield from _gradients(shape, dtype)
    yield from _sums(shape, dtype)


def _new(*sizes: int, dtype: torch.dtype, grad: bool = False) -> Tensor:
    return torch.empty(*sizes, dtype=dtype, device="cuda").zero_().requires_grad_(grad)


def _both(make: Callable[[], tuple[Call, list[Tensor]]]) -> Callable[[], dict[str, Call]]:
    """Forward, and backward of what it gave, by torch's autograd."""

    def calls() -> dict[str, Call]:
        forward, inputs = make()
        out = forward()
        assert isinstance(out, Tensor)
        gradient = torch.empty_like(out).zero_()

        def backward() -> object:
            return torch.autograd.grad(out, inputs, gradient, retain_graph=True)

        return {"forward": forward, "backward": backward}

    return calls


def _products(shape: LayerShape, dtype: torch.dtype) -> Iterator[Point]:
    """Of each linear layer: forward, and the gradients of its input and of its weight."""
    own_qkv = (shape.own_heads + 2 * shape.own_kv_heads) * shape.head
    own_ffn = shape.ffn // shape.tp
    layers = {
        "qkv": (shape.hidden, own_qkv),
        "attention_out": (shape.own_heads * shape.head, shape.hidden),
        "fc1": (shape.hidden, own_ffn),
        "fc1_gated": (shape.hidden, 2 * own_ffn),
        "fc2": (own_ffn, shape.hidden),
        "logits": (shape.hidden, shape.own_vocab),
    }
    for name, (width_in, width_out) in layers.items():
        n = shape.tokens
        for part, (m, columns, k) in {
            "forward": (width_out, n, width_in),
            "input_grad": (width_in, n, width_out),
            "weight_grad": (width_in, width_out, n),
        }.items():
            yield Point(
                name=f"{name}.{part}",
                family="gemm",
                make=partial(_product, part, shape.tokens, width_in, width_out, dtype),
                product=(m, columns, k, 1),
            )


def _product(part: str, tokens: int, width_in: int, width_out: int, dtype: torch.dtype) -> dict[str, Call]:
    if part == "forward":
        x, w = _new(tokens, width_in, dtype=dtype), _new(width_out, width_in, dtype=dtype)
        return {"": lambda: torch.mm(x, w.t())}
    g = _new(tokens, width_out, dtype=dtype)
    if part == "input_grad":
        w = _new(width_out, width_in, dtype=dtype)
        return {"": lambda: torch.mm(g, w)}
    x = _new(tokens, width_in, dtype=dtype)
    return {"": lambda: torch.mm(g.t(), x)}


def _attention(shape: LayerShape, dtype: torch.dtype) -> Iterator[Point]:
    b, h, s, d = shape.micro_batch, shape.own_heads, shape.sequence, shape.head

    def fused(backend: torch.nn.attention.SDPBackend) -> tuple[Call, list[Tensor]]:
        q, k, v = (_new(s, b, h, d, dtype=dtype, grad=True) for _ in range(3))

        def forward() -> Tensor:
            with torch.nn.attention.sdpa_kernel(backend):
                query, key, value = (t.permute(1, 2, 0, 3) for t in (q, k, v))
                return functional.scaled_dot_product_attention(query, key, value, is_causal=True)

        return forward, [q, k, v]

    if dtype != torch.float32:
        flash = torch.nn.attention.SDPBackend.FLASH_ATTENTION
        yield Point(name="attention_flash", family="attention", make=_both(lambda: fused(flash)))
    efficient = torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION
    yield Point(name="attention_efficient", family="attention", make=_both(lambda: fused(efficient)))

    # Megatron's own: scores, mask, softmax, context.
    def scores() -> tuple[Call, list[Tensor]]:
        q, k = (_new(s, b * h, d, dtype=dtype, grad=True) for _ in range(2))
        into = torch.empty(b * h, s, s, dtype=dtype, device="cuda")
        return (
            lambda: torch.baddbmm(
                into, q.transpose(0, 1), k.transpose(0, 1).transpose(1, 2), beta=0.0, alpha=d**-0.5
            ),
            [q, k],
        )

    def context() -> tuple[Call, list[Tensor]]:
        p, v = _new(b * h, s, s, dtype=dtype, grad=True), _new(s, b * h, d, dtype=dtype, grad=True)
        return (lambda: torch.bmm(p, v.transpose(0, 1))), [p, v]

    yield Point(name="attention_scores", family="gemm", make=_both(scores))
    yield Point(name="attention_context", family="gemm", make=_both(context))

    def softmax() -> tuple[Call, list[Tensor]]:
        x = _new(b, h, s, s, dtype=torch.float32, grad=True)
        return (lambda: torch.softmax(x, dim=-1)), [x]

    yield Point(name="softmax", family="softmax", make=_both(softmax))

    def mask() -> dict[str, Call]:
        x = _new(b, h, s, s, dtype=dtype)
        mask = torch.zeros(1, 1, s, s, dtype=torch.bool, device="cuda")
        y = _new(b, h, s, s, dtype=torch.float32)
        return {
            "fill": lambda: x.masked_fill_(mask, -10000.0),
            "scale": lambda: x * 0.125,
            "to_float": x.float,
            "from_float": lambda: y.to(dtype),
        }

    yield Point(name="mask", family="elementwise", make=mask)


def _rows(shape: LayerShape, dtype: torch.dtype) -> Iterator[Point]:
    s, b, h = shape.sequence, shape.micro_batch, shape.hidden

    def norm(rms: bool) -> tuple[Call, list[Tensor]]:
        x, w = _new(s, b, h, dtype=dtype, grad=True), _new(h, dtype=dtype, grad=True)
        if rms:
            return (lambda: functional.rms_norm(x, (h,), w, 1e-5)), [x, w]
        bias = _new(h, dtype=dtype, grad=True)
        return (lambda: functional.layer_norm(x, (h,), w, bias, 1e-5)), [x, w, bias]

    yield Point(name="rms_norm", family="normalization", make=_both(lambda: norm(True)))
    yield Point(name="layer_norm", family="normalization", make=_both(lambda: norm(False)))


def _elements(shape: LayerShape, dtype: torch.dtype) -> Iterator[Point]:
    s, b, h, f = shape.sequence, shape.micro_batch, shape.hidden, shape.ffn // shape.tp

    def swiglu() -> tuple[Call, list[Tensor]]:
        x = _new(s, b, 2 * f, dtype=dtype, grad=True)

        def forward() -> Tensor:
            gate, up = torch.chunk(x, 2, dim=-1)
            return functional.silu(gate) * up

        return forward, [x]

    def gelu() -> tuple[Call, list[Tensor]]:
        x, bias = _new(s, b, f, dtype=dtype, grad=True), _new(f, dtype=dtype, grad=True)
        return (lambda: functional.gelu(x + bias)), [x, bias]

    def dropout() -> tuple[Call, list[Tensor]]:
        x = _new(s, b, h, dtype=dtype, grad=True)
        return (lambda: functional.dropout(x, 0.1)), [x]

    def residual() -> dict[str, Call]:
        x, y, bias = _new(s, b, h, dtype=dtype), _new(s, b, h, dtype=dtype), _new(h, dtype=dtype)
        wide = _new(s, b, h, dtype=torch.float32)
        turned = x.view(s * b, h).t()
        return {
            "add": lambda: x + y,
            "add_bias": lambda: x + bias,
            "add_": lambda: x.add_(y),
            "mul": lambda: x * y,
            "to_float": x.float,
            "from_float": lambda: wide.to(dtype),
            "fill": x.zero_,
            "clone": x.clone,
            "transpose": turned.contiguous,
        }

    def rotary() -> tuple[Call, list[Tensor]]:
        x = _new(s, b, shape.own_heads, shape.head, dtype=dtype, grad=True)
        cos, sin = (_new(s, 1, 1, shape.head, dtype=dtype) for _ in range(2))

        def forward() -> Tensor:
            first, second = torch.chunk(x, 2, dim=-1)
            return x * cos + torch.cat((-second, first), dim=-1) * sin

        return forward, [x]

    yield Point(name="swiglu", family="elementwise", make=_both(swiglu))
    yield Point(name="gelu", family="elementwise", make=_both(gelu))
    yield Point(name="residual", family="elementwise", make=residual)
    yield Point(name="rotary", family="elementwise", make=_both(rotary))
    yield Point(name="dropout", family="random", make=_both(dropout))


def _vocabulary(shape: LayerShape, dtype: torch.dtype) -> Iterator[Point]:
    s, b, v = shape.sequence, shape.micro_batch, shape.own_vocab

    def embedding() -> tuple[Call, list[Tensor]]:
        w = _new(v, shape.hidden, dtype=dtype, grad=True)
        tokens = torch.zeros(b, s, dtype=torch.int64, device="cuda")
        return (lambda: functional.embedding(tokens, w)), [w]

    def loss() -> tuple[Call, list[Tensor]]:
        logits = _new(s * b, v, dtype=torch.float32, grad=True)
        labels = torch.zeros(s * b, dtype=torch.int64, device="cuda")
        return (lambda: functional.cross_entropy(logits, labels)), [logits]

    def shares() -> dict[str, Call]:  # of a vocabulary that ranks share
        logits = _new(s, b, v, dtype=torch.float32)
        rows = torch.zeros(s * b, dtype=torch.int64, device="cuda")
        at = torch.arange(s * b, device="cuda")
        flat, largest = logits.view(-1, v), _new(s, b, 1, dtype=torch.float32)
        return {
            "max": lambda: torch.max(logits, dim=-1),
            "sub_": lambda: logits.sub_(largest),
            "exp": lambda: torch.exp(logits, out=logits),
            "sum": lambda: logits.sum(dim=-1),
            "div_": lambda: logits.div_(largest),
            "pick": lambda: flat[at, rows],
        }

    yield Point(name="embedding", family="embedding", make=_both(embedding))
    yield Point(name="cross_entropy", family="softmax", make=_both(loss))
    yield Point(name="vocabulary_parallel_loss", family="reduction", make=shares)


def _optimizer(shape: LayerShape, dtype: torch.dtype) -> Iterator[Point]:
    """AdamW over the parameters of a layer in float32, and what is done with its gradients."""

    def step() -> dict[str, Call]:
        h, f, tp = shape.hidden, shape.ffn, shape.tp
        sizes = [(h // tp, h), (h // tp, h), (f // tp, h), (h, f // tp), (h,), (h,)]
        calls: dict[str, Call] = {}
        parameters = [_new(*size, dtype=torch.float32, grad=True) for size in sizes]
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        for kind in ("fused", "foreach"):
            optimizer = torch.optim.AdamW(parameters, lr=1e-4, **{kind: True})
            calls[kind] = optimizer.step
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        model = [_new(*size, dtype=dtype) for size in sizes]
        main = [parameter.detach() for parameter in parameters]
        calls["norm"] = lambda: torch._foreach_norm(gradients)
        calls["clip"] = lambda: torch._foreach_mul_(gradients, 0.5)
        calls["zero"] = lambda: torch._foreach_zero_(gradients)
        calls["to_model"] = lambda: torch._foreach_copy_(model, main)
        return calls

    yield Point(name="adamw", family="optimizer", make=step)


def _gradients(shape: LayerShape, dtype: torch.dtype) -> Iterator[Point]:
    """What a trainer does with each weight's gradient: summed in float32, cleared, its norm, cast."""
    own_qkv = (shape.own_heads + 2 * shape.own_kv_heads) * shape.head
    own_ffn = shape.ffn // shape.tp
    sizes = {
        "qkv": own_qkv * shape.hidden,
        "attention_out": shape.own_heads * shape.head * shape.hidden,
        "fc1": own_ffn * shape.hidden,
        "fc1_gated": 2 * own_ffn * shape.hidden,
        "norm": shape.hidden,
        "vocabulary": shape.own_vocab * shape.hidden,
    }

    def gradients(size: int) -> dict[str, Call]:
        main, own = _new(size, dtype=torch.float32), _new(size, dtype=dtype)
        return {
            "sum": lambda: main.add_(own),
            "zero": main.zero_,
            "zero_own": own.zero_,
            "norm": lambda: torch.norm(main, 2.0),
            "from_main": lambda: own.copy_(main),
            "to_main": lambda: main.copy_(own),
        }

    for name, size in sizes.items():
        yield Point(name=f"gradient.{name}", family="elementwise", make=partial(gradients, size))


def _sums(shape: LayerShape, dtype: torch.dtype) -> Iterator[Point]:
    def sums() -> dict[str, Call]:
        x = _new(shape.tokens, shape.hidden, dtype=dtype)
        flat = _new(shape.hidden * shape.hidden // shape.tp, dtype=torch.float32)
        return {
            "all": x.sum,
            "rows": lambda: x.sum(dim=0),
            "columns": lambda: x.sum(dim=1),
            "norm": flat.norm,
            "mean": flat.mean,
        }

    yield Point(name="sums", family="reduction", make=sums)
