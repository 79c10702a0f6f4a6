"""What an event of a SPARe training says, in words: what was done, and what it cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from prismcore.rank_list import format_ranks
from prismcore.report.units import format_bytes, plural

if TYPE_CHECKING:
    from prismcore.spare.runtime.events import Event

__all__ = ["age", "milliseconds", "said"]

_LISTED = 10
_LONGEST = 200
_HOW = {
    "collective": "a collective failed",
    "heartbeat": "no heartbeat",
    "timeout": "timeout",
    "inside": "seen by another rank of the group",
    "left": "left",
}
_AGES = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def milliseconds(value: float) -> str:
    """``3.4 ms``, ``412 ms``, ``12.3 s``."""
    if abs(value) < 10:
        return f"{value:.1f} ms"
    return f"{value:,.0f} ms" if abs(value) < 10_000 else f"{value / 1000:,.1f} s"


def age(seconds: float) -> str:
    """``0.3 s``, ``12 s``, ``5 min``, ``3 h``, ``2 d``."""
    for scale, unit in _AGES:
        if seconds >= 2 * scale:
            return f"{seconds / scale:,.0f} {unit}"
    return f"{max(0.0, seconds):.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"


def said(event: Event, *, of: int | None = None) -> str:
    """One line; `of`: the group in whose row it stands, so that it need not be named."""
    tell = _WORDS.get(event.event)
    text = _unknown(event) if tell is None else tell(_Fields(event), of)
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    return "".join(c if c.isprintable() else " " for c in text)  # a log may hold a terminal's codes


class _Fields:
    """Fields of an event, with what is missing or odd left out of sentences."""

    def __init__(self, event: Event) -> None:
        self._fields = event.fields
        self.step = event.step

    def text(self, name: str, before: str = "", after: str = "") -> str:
        value = self._fields.get(name)
        return (
            ""
            if value is None or value == "" or isinstance(value, (list, dict))
            else f"{before}{value}{after}"
        )

    def count(self, name: str) -> int | None:
        value = self._fields.get(name)
        if isinstance(value, list):
            return len(value)
        return value if type(value) is int else None

    def many(self, name: str, noun: str) -> str:
        count = self.count(name)
        return "" if count is None else plural(count, noun)

    def groups(self, name: str, noun: str = "group") -> str:
        value = self._fields.get(name)
        parts = value if isinstance(value, list) else [value]
        numbers = sorted({n for n in parts if type(n) is int and n >= 0})
        if not numbers:
            return f"no {noun}" if value == [] else f"{noun}s unknown"
        more = f" and {len(numbers) - _LISTED} more" if len(numbers) > _LISTED else ""
        return f"{noun}{'s' * (len(numbers) > 1)} {format_ranks(numbers[:_LISTED])}{more}"

    def has(self, name: str, number: int | None) -> bool:
        value = self._fields.get(name)
        return number is not None and (value == number or (isinstance(value, list) and number in value))

    def cost(self, name: str = "cost_ms", before: str = "in ", after: str = "") -> str:
        value = self._fields.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15:
            return f"{before}{milliseconds(value)}{after}"
        return ""


def _start(f: _Fields, of: int | None) -> str:
    return _join("started", f.text("replica", "as "))


def _membership(f: _Fields, of: int | None) -> str:
    return _join("agreed on", f.many("members", "member"), f.text("epoch", "(epoch ", ")"), f.cost())


def _failure(f: _Fields, of: int | None) -> str:
    how = f.text("how")
    lost = f"lost in step {f.step:,}" if f.has("lost", of) else f"{f.groups('lost')} lost"
    detail = f.text("detail", "(", ")")
    reason = _join(_HOW.get(how, how), detail)
    return f"{lost}: {reason}" if reason else lost


def _plan(f: _Fields, of: int | None) -> str:
    mine = f.count("mine")
    here = "" if mine is None else "none here" if mine == 0 else f"{mine:,} here"
    plan = ", ".join(
        filter(None, (f.text("outcome"), f.text("depth", "depth "), _patches(f.count("patches")), here))
    )
    return _join("plan:", plan, f.cost())


def _patch(f: _Fields, of: int | None) -> str:
    return _join("patched", f.many("parts", "part"), f.cost())


def _commit(f: _Fields, of: int | None) -> str:
    costs = ", ".join(filter(None, (f.cost("compute_ms", "compute "), f.cost("reduce_ms", "reduce "))))
    return _join("committed:" if costs else "committed", costs)


def _rejoin(f: _Fields, of: int | None) -> str:
    size = f.count("bytes")
    moved = "" if size is None else format_bytes(size)
    source = f.text("source", "from ")
    who = "re-joined" if f.has("joined", of) else f"{f.groups('joined')} re-joined"
    return _join(who, source if not moved else f"with {moved} {source}".rstrip(), f.cost())


def _spare(f: _Fields, of: int | None) -> str:
    return "waits for a place" if f.text("waiting") != "False" else "takes a place"


def _wipe_out(f: _Fields, of: int | None) -> str:
    lost = f"wiped out: no host left for {f.groups('lost_types', 'shard type')}"
    return lost + f.text("last_committed", ", last committed step ") + f.text("checkpoint", ", restart from ")


def _checkpoint(f: _Fields, of: int | None) -> str:
    return _join("checkpoint", f.cost(), f.cost("blocked_ms", "(blocked ", ")"))


def _lighthouse(f: _Fields, of: int | None) -> str:
    return _join("lighthouse", f.text("state"), f.cost("cost_ms", "after "))


def _stop(f: _Fields, of: int | None) -> str:
    return _join("stopped" + (":" if f.text("reason") else ""), f.text("reason"))


def _unknown(event: Event) -> str:
    return _join(event.event, *(f"{name}={value}" for name, value in event.fields.items()))


def _patches(count: int | None) -> str:
    return "" if count is None else "1 patch" if count == 1 else f"{count:,} patches"


def _join(*parts: str) -> str:
    return " ".join(filter(None, parts))


_WORDS: dict[str, Callable[[_Fields, int | None], str]] = {
    "start": _start,
    "membership": _membership,
    "failure": _failure,
    "plan": _plan,
    "patch": _patch,
    "commit": _commit,
    "rejoin": _rejoin,
    "spare": _spare,
    "wipe_out": _wipe_out,
    "checkpoint": _checkpoint,
    "lighthouse": _lighthouse,
    "stop": _stop,
}
