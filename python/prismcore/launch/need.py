"""An object that a rank needs and that nobody has given yet."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["ObjectNeed"]


@dataclass(kw_only=True, slots=True, frozen=True)
class ObjectNeed:
    """Which object, of which call."""

    key: str
    """Names the call on every rank."""
    root: int
    """Rank of the world that gives it."""
    function: str
    number: int
    """Of the object among those of its group (messages: of its pair)."""
    group: str
    size: int
    site: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def told(self, rank: int) -> str:
        """In words, as the need of ``rank``."""
        site = f" at {self.site}" if self.site else ""
        verb = "sends" if self.function == "recv_object_list" else "gives"
        return (
            f"rank {rank} needs the object that rank {self.root} {verb} in {self.function}{site} "
            f"(object {self.number} of communicator {self.group}, {self.size} ranks)"
        )
