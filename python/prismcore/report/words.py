"""Findings as short phrases."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from prismcore.report.units import format_share, plural


def provenance_words(shares: Mapping[str, float]) -> str:
    """``{"model": 0.98, "unknown": 0.02, ...}`` as ``98.00 % model, 2.00 % unknown``."""
    parts = [f"{format_share(share)} {name}" for name, share in shares.items() if share > 0]
    return ", ".join(parts) or "no device time"


def spread_words(spread: Any) -> str:
    """``{"peak": 0.001, ...}`` as ``peak 0.10 %, ...``."""
    if not isinstance(spread, Mapping) or not spread:
        return "not known"
    return ", ".join(f"{name.replace('_', ' ')} {format_share(float(v))}" for name, v in spread.items())


def short_name(kernel: str) -> str:
    """A kernel's identifier without scope and arguments; the name itself where it cannot be read."""
    from prismcore import _core

    return _core.kernel_base(kernel).decode("utf-8", "replace") or kernel


def kernel_label(kernel: str) -> str:
    """Identifier of a kernel with what it applies: ``vectorized_elementwise_kernel<MulFunctor>``.

    What it applies is a guess from the identifiers in a mangled name: the last that is called a
    functor, a kernel or a set of reduction steps.
    """
    base = short_name(kernel)
    applied = [word for word in _identifiers(kernel) if word != base and _APPLIED.search(word)]
    return f"{base}<{applied[-1]}>" if applied else base


_APPLIED = re.compile(r"(?:[Ff]unctor\w*|_kernel(?:_cuda|_impl)?|Ops)$")
_LITERAL = re.compile(r"L[a-z]n?\d+E")
_LENGTH = re.compile(r"\d+")


def _identifiers(mangled: str) -> Iterator[str]:
    """Length-prefixed identifiers of a mangled name, numbers that are template arguments left out."""
    text = _LITERAL.sub("L", mangled)
    at = 0
    while (length := _LENGTH.search(text, at)) is not None:
        at = length.end()
        word = text[at : at + int(length[0][:4])]
        if len(word) == int(length[0][:4]) and word.isidentifier():
            yield word
            at += len(word)


def rule_words(rules: Mapping[str, int], file: Any) -> str:
    """``{"1 recv": 24}`` of ``rules.py`` as ``rules.py: recv (24 calls)``."""
    named = ", ".join(f"{name.partition(' ')[2]} ({plural(calls, 'call')})" for name, calls in rules.items())
    return f"{file['name']}: {named}" if isinstance(file, Mapping) and "name" in file else named
