"""What is routed: tokens, experts, and the ranks they lie on."""

from __future__ import annotations

from dataclasses import dataclass

from prismcore.errors import RoutingError

__all__ = ["RoutingShape"]


@dataclass(kw_only=True, slots=True, frozen=True)
class RoutingShape:
    """One layer of experts in one micro-batch.

    Raises :class:`RoutingError` where these sizes cannot be.
    """

    tokens: int
    """Of one source, in one micro-batch. All sources have as many."""
    topk: int
    """Different experts that each token goes to."""
    experts: int
    """Of the layer, over all ranks."""
    ranks: int = 1
    """Expert-parallel ranks. Expert e lies on rank e // (experts / ranks)."""
    sources: int = 1
    """Ranks that send: expert-parallel times expert tensor-parallel ranks."""

    def __post_init__(self) -> None:
        if self.tokens < 0:
            raise RoutingError(f"tokens {self.tokens}: expected 0 or more")
        if self.sources < 1:
            raise RoutingError(f"sources {self.sources}: expected 1 or more")
        if self.experts < 1 or self.ranks < 1 or self.experts % self.ranks:
            raise RoutingError(
                f"{self.experts} experts on {self.ranks} ranks: expected equally many on each, at least one"
            )
        if not 1 <= self.topk <= self.experts:
            raise RoutingError(
                f"top-{self.topk} of {self.experts} experts: expected 1 to {self.experts}, all different"
            )

    @property
    def experts_per_rank(self) -> int:
        return self.experts // self.ranks
