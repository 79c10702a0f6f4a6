"""Results as JSON: dataclasses by field name, keys as text, finite numbers only."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any


def plain(value: Any) -> Any:
    """`value` as what JSON knows: dict, list, str, int, float, bool, None.

    Raises TypeError for anything else, so that no repr ever ends up in a result.
    """
    if isinstance(value, Enum):  # an IntEnum is an int too
        return value.name
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, PurePath):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(plain(k)): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return plain(value.tolist())
    raise TypeError(f"{type(value).__name__} has no JSON form")


def dumps(value: Any) -> str:
    """`value` as an indented JSON text that ends with a newline; ValueError for nan and infinity.

    ASCII alone: the same in every locale, and file names that are no UTF-8 come through.
    """
    return json.dumps(plain(value), indent=2, allow_nan=False) + "\n"
