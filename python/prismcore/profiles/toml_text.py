"""Writes what a profile's file may hold: texts, numbers, booleans, lists of them, and tables."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["toml_text"]


def toml_text(table: Mapping[str, Any], comments: Mapping[str, str] | None = None) -> str:
    """TOML text that reads back as ``table``; ``comments`` stand behind values, by dotted key."""
    lines: list[str] = []
    _write(table, "", lines, comments or {})
    return "\n".join(lines).strip() + "\n"


def _write(table: Mapping[str, Any], prefix: str, lines: list[str], comments: Mapping[str, str]) -> None:
    tables = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    plain = {key: value for key, value in table.items() if key not in tables}
    if prefix and (plain or not tables):
        lines += ["", f"[{prefix}]"]
    for key, value in plain.items():
        dotted = f"{prefix}.{key}" if prefix else key
        comment = comments.get(dotted)
        lines.append(f"{_key(key)} = {_value(value)}" + (f"  # {comment}" if comment else ""))
    for key, value in tables.items():
        _write(value, f"{prefix}.{_key(key)}" if prefix else _key(key), lines, comments)


def _key(key: str) -> str:
    bare = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if bare else _text(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:_}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} found, expected a finite number")
        text = repr(value)
        return text if "." in text or "e" in text else f"{text}.0"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_value, value))}]"
    raise TypeError(f"{type(value).__name__} found, expected what TOML holds")


def _text(text: str) -> str:
    # JSON's escapes are TOML's, but for DEL, and surrogate pairs, which ensure_ascii would make.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")
