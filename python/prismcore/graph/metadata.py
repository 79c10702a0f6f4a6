"""What was noted of a job, as the file holds it: one JSON object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from prismcore.errors import GraphError, GraphFormatError

__all__ = ["dump_metadata", "load_metadata"]


def dump_metadata(metadata: Mapping[str, Any] | None) -> str:
    """The same dictionary gives the same bytes. Raises GraphError if JSON cannot hold it.

    ASCII: what is no UTF-8 (a file name among the arguments of a job) is escaped and comes back.
    """
    try:
        return json.dumps(dict(metadata or {}), sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise GraphError(f"metadata: expected a dictionary that JSON can hold: {error}") from error


def load_metadata(noted: str) -> dict[str, Any]:
    """Raises GraphFormatError if it is no JSON object."""
    try:
        value = json.loads(noted)
    except (ValueError, RecursionError) as error:
        raise GraphFormatError(f"metadata: expected JSON: {error}") from error
    if not isinstance(value, dict):
        raise GraphFormatError(f"metadata: {type(value).__name__} found, expected a JSON object")
    return value
