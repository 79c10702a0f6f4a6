"""What the members of a group in host memory hold, where some of them run beside this rank.

The rule is that of the NCCL door: members that run give what they hold, every other member is taken to
hold what the first that runs holds, and in an all-to-all gives back what it is sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed.distributed_c10d as c10d

from prismcore.launch import company

__all__ = ["HostBytes", "Receiver", "combine"]

Tensor = Any  # torch's stubs are not checked


@dataclass(kw_only=True, slots=True, frozen=True)
class Receiver:
    """Of one message."""

    has_come: Callable[[], bool]
    take: Callable[[], Tensor]
    """Waits for it."""


class HostBytes:
    """Of one group; ``name`` is the group's on every member. Tensors are in host memory."""

    def __init__(self, name: str, ranks: Sequence[int], position: int) -> None:
        self._name = name
        self._ranks = ranks
        self._own = position
        self._running = [p for p, rank in enumerate(ranks) if company.runs(rank)]
        self._others = [p for p in self._running if p != position]
        self._calls = 0
        self._messages: Counter[tuple[int, int, int]] = Counter()

    @property
    def real(self) -> bool:
        """Another member runs."""
        return bool(self._others)

    def runs(self, position: int) -> bool:
        return position in self._running

    def all(self, own: Tensor) -> list[Tensor]:
        """What every member holds, by position; as long as `own`."""
        return self._gathered(own, self._leave(own, self._others))

    def to_root(self, own: Tensor, root: int) -> list[Tensor] | None:
        """The same for the root; None for others."""
        key = self._leave(own, [root] if root in self._others else [])
        return self._gathered(own, key) if root == self._own else None

    def from_root(self, own: Tensor, root: int) -> Tensor:
        """What the root holds; `own` is as long."""
        root = root if self.runs(root) else self._running[0]
        key = self._leave(own, self._others if root == self._own else [])
        return own if root == self._own else self._take(root, key, own)

    def scattered(self, parts: Sequence[Tensor] | None, root: int, like: Tensor) -> Tensor | None:
        """The root's part for this rank; None where the root does not run."""
        key = self._next()
        if root == self._own and parts is not None:
            for p in self._others:
                company.leave([self._ranks[p]], key, _bytes_of(parts[p]))
            return parts[self._own]
        return self._take(root, key, like) if self.runs(root) else None

    def swapped(self, parts: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
        """What each member gives this rank, by position, which gives ``parts`` by position."""
        key = self._next()
        for p in self._others:
            company.leave([self._ranks[p]], key, _bytes_of(parts[p]))
        return [self._take(p, key, like[p]) if p in self._others else parts[p] for p in range(len(parts))]

    def for_me(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """What each member holds for this rank, which holds ``parts`` for them, by position."""
        key = self._next()
        for p in self._others:
            company.leave([self._ranks[p]], key, _bytes_of(parts[p]))
        return self._gathered(parts[self._own], key)

    def send(self, tensor: Tensor, to: int, tag: int) -> None:
        company.leave([self._ranks[to]], self._message(self._own, to, tag), _bytes_of(tensor))

    def receiver(self, like: Tensor, source: int, tag: int) -> Receiver:
        """Takes its place among the receives now."""
        key = self._message(source, self._own, tag)
        return Receiver(
            has_come=lambda: company.has_come(self._ranks[source], key),
            take=lambda: self._take(source, key, like),
        )

    def _gathered(self, own: Tensor, key: str) -> list[Tensor]:
        held = {p: self._take(p, key, own) for p in self._others}
        held[self._own] = own
        return [held.get(p, held[self._running[0]]) for p in range(len(self._ranks))]

    def _next(self) -> str:
        self._calls += 1
        return f"host/{self._name}/{self._calls}"

    def _message(self, source: int, destination: int, tag: int) -> str:
        channel = (source, destination, tag)
        self._messages[channel] += 1
        return f"host/{self._name}/{channel}/{self._messages[channel]}"

    def _leave(self, own: Tensor, positions: Sequence[int]) -> str:
        key = self._next()
        if positions:
            company.leave([self._ranks[p] for p in positions], key, _bytes_of(own))
        return key

    def _take(self, position: int, key: str, like: Tensor) -> Tensor:
        """A tensor of the kind and shape of ``like``; of a message of another length, what fits."""
        data = company.take(self._ranks[position], key)
        flat = torch.zeros(like.numel(), dtype=like.dtype)
        size = like.element_size()
        count = min(flat.numel(), len(data) // size)
        if count:
            flat[:count] = torch.frombuffer(bytearray(data[: count * size]), dtype=like.dtype)
        return flat.view(like.shape)


def combine(operation: Any, parts: Sequence[Tensor]) -> Tensor:
    """One reduction of the parts, in order, so that all members get the same bytes."""
    kinds = c10d.ReduceOp.RedOpType
    first = parts[0]
    if first.dtype == torch.bool and operation in (kinds.SUM, kinds.PRODUCT):
        steps = {kinds.SUM: torch.logical_or, kinds.PRODUCT: torch.logical_and}
    else:
        steps = {
            kinds.SUM: torch.add,
            kinds.AVG: torch.add,
            kinds.PRODUCT: torch.mul,
            kinds.MAX: torch.maximum,
            kinds.MIN: torch.minimum,
            kinds.BAND: torch.bitwise_and,
            kinds.BOR: torch.bitwise_or,
            kinds.BXOR: torch.bitwise_xor,
        }
    step = next((call for kind, call in steps.items() if operation == kind), torch.add)
    result = first.clone()
    for part in parts[1:]:
        result = step(result, part)
    if operation == kinds.AVG:
        result = (result / len(parts)).to(first.dtype)
    return result


def _bytes_of(tensor: Tensor) -> bytes:
    if not tensor.numel():
        return b""
    return bytes(tensor.detach().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
