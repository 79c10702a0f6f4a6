"""Functions of torch that a rank replaces, bound when they are called.

A module that is imported in the warm parent may take them by value (``from torch.distributed import
TCPStore``), before there is a rank.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch.distributed
import torch.distributed.distributed_c10d as c10d

__all__ = ["install", "use_split_group", "use_store"]

_split_group: Callable[..., Any] | None = None
_store: object = None


def install() -> None:
    """In the parent, before any module of the program is imported."""
    original: Callable[..., Any] = c10d.split_group

    @functools.wraps(original)
    def split_group(*args: Any, **kwargs: Any) -> Any:
        return (_split_group or original)(*args, **kwargs)

    real_store: Callable[..., Any] = torch.distributed.TCPStore

    class TCPStore:
        """The store of the rank, whatever address is asked for."""

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return real_store(*args, **kwargs) if _store is None else _store

    c10d.split_group = torch.distributed.split_group = split_group
    # By name: as an attribute of the package it is a function.
    for module in (sys.modules["torch.distributed.rendezvous"], torch.distributed):
        module.TCPStore = TCPStore  # type: ignore[union-attr]


def use_split_group(wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """In the rank: ``wrap`` gets torch's own and gives what stands for it."""
    global _split_group  # noqa: PLW0603
    _split_group = wrap(c10d.split_group.__wrapped__)


def use_store(store: object) -> None:
    """In the rank: what every TCPStore is."""
    global _store  # noqa: PLW0603
    _store = store
