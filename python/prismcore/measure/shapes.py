"""Shapes of transformer layers, as one rank of a tensor-parallel group computes them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from prismcore.errors import MeasureError

__all__ = ["PRESETS", "LayerShape", "parse_shape"]

_MOST: Final = 1 << 24


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerShape:
    """A decoder layer and its embedding; counts of the whole model, ``tp`` ranks share them.

    Raises:
        MeasureError: a count that is not positive, or that the heads or ``tp`` do not divide.
    """

    hidden: int = 4096
    ffn: int = 14336
    heads: int = 32
    kv_heads: int = 8
    sequence: int = 4096
    micro_batch: int = 1
    tp: int = 1
    vocab: int = 128256
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if not 1 <= value <= _MOST:
                raise MeasureError(f"shape: {name}: found {value}, expected 1 to {_MOST:,}")
        for name, by in (("hidden", "heads"), ("heads", "kv_heads"), ("heads", "tp"), ("ffn", "tp")):
            if getattr(self, name) % getattr(self, by):
                raise MeasureError(
                    f"shape: {name}={getattr(self, name)} found with {by}={getattr(self, by)}, expected a "
                    "multiple of it"
                )
        if self.kv_heads % self.tp and self.tp % self.kv_heads:
            raise MeasureError(
                f"shape: kv_heads={self.kv_heads} found with tp={self.tp}, expected one to divide the other"
            )
        if self.dtype not in DTYPES:
            raise MeasureError(f"shape: dtype={self.dtype!r} found, expected one of {', '.join(DTYPES)}")

    @property
    def head(self) -> int:
        """Width of a head."""
        return self.hidden // self.heads

    @property
    def tokens(self) -> int:
        return self.sequence * self.micro_batch

    @property
    def own_heads(self) -> int:
        return self.heads // self.tp

    @property
    def own_kv_heads(self) -> int:
        return max(self.kv_heads // self.tp, 1)

    @property
    def own_vocab(self) -> int:
        """Padded so that every rank has as many rows, a multiple of 128, as Megatron does."""
        return -(-self.vocab // (128 * self.tp)) * 128

    def text(self) -> str:
        """As :func:`parse_shape` reads it."""
        return ",".join(f"{name}={value}" for name, value in asdict(self).items())


DTYPES: Final = ("bfloat16", "float16", "float32", "tf32")
_COUNTS: Final = tuple(field.name for field in fields(LayerShape) if field.name != "dtype")

#: Most wanted first: published models, and how their layers are usually cut.
PRESETS: Final[dict[str, LayerShape]] = {
    "8b": LayerShape(),
    "70b-tp8": LayerShape(hidden=8192, ffn=28672, heads=64, kv_heads=8, tp=8),
    "8b-tp8": LayerShape(tp=8),
    "gpt-1.3b": LayerShape(
        hidden=2048, ffn=8192, heads=16, kv_heads=16, sequence=2048, micro_batch=4, vocab=50304
    ),
    "gpt-175b-tp8": LayerShape(
        hidden=12288, ffn=49152, heads=96, kv_heads=96, sequence=2048, tp=8, vocab=50304
    ),
    "8b-fp16": LayerShape(dtype="float16"),
    "8b-tf32": LayerShape(dtype="tf32"),
    "8b-fp32": LayerShape(dtype="float32"),
}


def parse_shape(text: str) -> LayerShape:
    """A preset's name, or ``hidden=1024,heads=16,...``: what is left out is an 8B model's, ``kv_heads`` the
    heads', ``ffn`` four times ``hidden``.

    Raises:
        MeasureError: an unknown name, or a count that cannot be.
    """
    if text in PRESETS:
        return PRESETS[text]
    given: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or (name not in _COUNTS and name != "dtype") or name in given:
            raise MeasureError(
                f"shape: found {part!r}, expected one of {', '.join(PRESETS)}, or NAME=VALUE,... once each "
                f"with {', '.join((*_COUNTS, 'dtype'))}"
            )
        if name != "dtype" and not (value.isascii() and value.isdigit() and len(value) < 10):
            raise MeasureError(f"shape: {name}: found {value!r}, expected a positive integer")
        given[name] = value if name == "dtype" else int(value)
    if "hidden" in given:
        given.setdefault("ffn", 4 * given["hidden"])
    if "heads" in given:
        given.setdefault("kv_heads", given["heads"])
    return LayerShape(**given)
