"""A SPARe training that runs, by its event logs: lines, table, JSON of ``prism spare watch``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from rich import box
from rich.table import Table
from rich.text import Text

from prismcore.rank_list import format_ranks
from prismcore.report.spare_words import age, milliseconds, said
from prismcore.report.units import format_count, plural
from prismcore.spare.runtime.progress import STATES, Group, Progress

if TYPE_CHECKING:
    from prismcore.spare.runtime.events import Event
    from prismcore.spare.runtime.follow import Follower

_STYLES = {
    "lost": "red",
    "wiped out": "bold red",
    "silent": "red",
    "re-joining": "cyan",
    "agreeing": "yellow",
    "patching": "yellow",
    "starting": "cyan",
    "spare": "blue",
    "stopped": "dim",
    "training": "green",
    "no log": "dim",
}
_STALLED_STEPS = 10  # a commit that is late by so many steps
_STALLED_S = 5.0
_LISTED = 40  # columns of a list of groups
_COLUMNS = ("group", "state", "step", "parts", "loss", "step time", "age", "last event")
_SPARED = ("parts", "age", "step time", "loss")  # what a narrow terminal does without, in this order
_LEAST_SAID = 24  # columns of the last event
_GAP = 2  # between columns


def status_lines(progress: Progress, follower: Follower, now_ns: int) -> list[Text]:
    """What holds for all groups, then what needs a look."""
    size, alive, step = progress.size_known(), progress.alive(), progress.step()
    whole = [
        Text(f"step {'-' if step is None else format_count(step)}", "bold"),
        Text(f"{alive} of {plural(size, 'group')} alive", "green" if alive == size else "yellow"),
    ]
    if progress.depth is not None:
        whole.append(Text(f"depth {progress.depth}"))
    if progress.redundancy is not None:
        whole.append(Text(f"redundancy {progress.redundancy}"))
    rate = progress.steps_per_s()
    if rate is not None:
        whole.append(Text(f"{rate:.3g} steps/s" if rate < 100 else f"{rate:,.0f} steps/s"))
    if progress.committed_ns is not None:
        waited = max(0, now_ns - progress.committed_ns) / 1e9
        stalled = waited > max(_STALLED_S, _STALLED_STEPS / (rate or math.inf))
        whole.append(Text(f"last commit {age(waited)} ago", "red" if stalled else ""))
    counts = [
        Text(f"{progress.committed:,} committed"),
        Text(plural(progress.failures, "failure")),
        Text("1 patch" if progress.patches == 1 else f"{progress.patches:,} patches"),
        Text(plural(progress.rejoins, "re-join")),
    ]
    if progress.spares:
        counts.append(Text(plural(progress.spares, "spare")))
    if progress.wipe_outs:
        counts.append(Text(plural(progress.wipe_outs, "wipe-out"), "red"))
    if progress.checkpoint is not None:
        counts.append(Text(f"checkpoint of step {progress.checkpoint:,}"))
    return [Text(", ").join(whole), Text(", ").join(counts), *_notices(progress, follower, now_ns)]


def _notices(progress: Progress, follower: Follower, now_ns: int) -> list[Text]:
    notices = []
    if progress.wiped_out is not None:
        notices.append(Text(said(progress.wiped_out), "bold red"))
    if progress.lighthouse_lost is not None:
        since = age((now_ns - progress.lighthouse_lost.time_ns) / 1e9)
        notices.append(Text(f"no lighthouse since {since}", "red"))
    problems = list(follower.problems.items())
    notices += [Text(f"{path}: {why}", "red") for path, why in problems[:3]]
    if len(problems) > 3:
        notices.append(Text(f"{len(problems) - 3} more files cannot be read", "red"))
    if follower.damaged:
        notices.append(Text(f"{plural(follower.damaged, 'damaged line')} skipped", "yellow"))
    if not progress.events:
        notices.append(Text(f"no events yet at {', '.join(follower.places)}", "yellow"))
    return notices


def groups_table(progress: Progress, now_ns: int, rows: int, width: int | None = None) -> Table:
    """A row a group, those that need a look first; where `rows` are too few, one row for the rest of a state.

    States alone may need more rows than that, up to one each. At most `width` columns wide: what is least
    missed goes, then the last events are cut.
    """
    cells: list[list[Text]] = []
    for state, shown, folded in _rows(progress, rows):
        cells += [_group_row(group, state, now_ns) for group in shown]
        cells += [_folded_row(folded, state)] if folded else []
    widths = [max(map(len, column)) for column in zip(map(Text, _COLUMNS), *cells, strict=True)]
    kept, said_width = _fit(widths, width)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for place in kept:
        name = _COLUMNS[place]
        side: Literal["left", "right"] = "left" if name in ("state", "last event") else "right"
        # Told the width, since rich would rather cut numbers than words.
        table.add_column(name, justify=side, no_wrap=True, min_width=min(widths[place], said_width))
    for row in cells:
        row[-1].truncate(said_width, overflow="ellipsis")
        table.add_row(*(row[place] for place in kept))
    return table


def _fit(widths: Sequence[int], width: int | None) -> tuple[list[int], int]:
    """Columns that are kept, and the width of the last one."""
    kept = list(range(len(widths)))
    if width is None:
        return kept, widths[-1]
    for name in (*_SPARED, None):
        rest = width - sum(widths[place] + _GAP for place in kept[:-1])
        if rest >= _LEAST_SAID or name is None:
            break
        kept.remove(_COLUMNS.index(name))
    return kept, max(rest, _LEAST_SAID)


def _rows(progress: Progress, room: int) -> Iterable[tuple[str, Sequence[Group], Sequence[Group]]]:
    """(state, groups with a row each, groups that share one), in the order of STATES."""
    by_state: dict[str, list[Group]] = {state: [] for state in STATES}
    for group in sorted(progress.groups.values(), key=lambda group: group.number):
        by_state[progress.state(group)].append(group)
    there = [(state, groups) for state, groups in by_state.items() if groups]
    for later, (state, groups) in zip(range(len(there) - 1, -1, -1), there, strict=True):
        fit = max(1, room - later)  # a row at least for each state to come
        count = len(groups) if len(groups) <= fit else fit - 1
        yield state, groups[:count], groups[count:]
        room -= min(len(groups), fit)


def _group_row(group: Group, state: str, now_ns: int) -> list[Text]:
    event = _telling(group)
    return [
        Text("spare" if group.number < 0 else str(group.number)),
        Text(state, _STYLES[state]),
        Text("-" if group.step < 0 else format_count(group.step)),
        Text("-" if group.parts is None else format_count(group.parts)),
        Text("-" if group.loss is None else _loss(group.loss), _odd(group.loss)),
        Text("-" if group.step_ms is None else milliseconds(group.step_ms)),
        Text("-" if event is None else age((now_ns - event.time_ns) / 1e9)),
        Text("-" if event is None else said(event, of=group.number)),
    ]


def _folded_row(groups: Sequence[Group], state: str) -> list[Text]:
    losses = [g.loss for g in groups if g.loss is not None]
    odd = next((loss for loss in losses if not math.isfinite(loss)), None)
    listed = format_ranks(g.number for g in groups if g.number >= 0)
    if len(listed) > _LISTED:
        listed = f"{listed[:_LISTED].rpartition(',')[0] or listed[:_LISTED]},..."
    return [
        Text(f"+{len(groups):,}", "bold"),
        Text(state, _STYLES[state]),
        Text(_span([format_count(n) for n in _ends(g.step for g in groups if g.step >= 0)])),
        Text(_span([format_count(n) for n in _ends(g.parts for g in groups if g.parts is not None)])),
        Text(_span(list(map(_loss, _ends(losses)))) if odd is None else _loss(odd), _odd(odd)),
        Text(_span([milliseconds(ms) for ms in _ends(g.step_ms for g in groups if g.step_ms is not None)])),
        Text("-"),
        Text(f"groups {listed}", "dim"),
    ]


def _telling(group: Group) -> Event | None:
    """The event that tells best what a group does: of a lost one, what others say of it."""
    return group.lost if group.state == "lost" and group.lost is not None else group.last


def _ends(values: Iterable[Any]) -> list[Any]:
    found = sorted(set(values))
    return [found[0], found[-1]] if len(found) > 1 else found


def _span(ends: Sequence[str]) -> str:
    """``300-340 ms`` of ``300 ms`` and ``340 ms``."""
    if len(set(ends)) < 2:
        return ends[0] if ends else "-"
    first, last = ends
    unit = last.partition(" ")[2]
    return f"{first.removesuffix(f' {unit}') if unit else first}-{last}"


def _loss(loss: float) -> str:
    return f"{loss:.4g}"


def _odd(loss: float | None) -> str:
    return "" if loss is None or math.isfinite(loss) else "bold red"


def summary(progress: Progress, follower: Follower, now_ns: int) -> dict[str, Any]:
    """The same as JSON (``docs/cli.md``)."""
    waited = None if progress.committed_ns is None else max(0, now_ns - progress.committed_ns) / 1e9
    return {
        "groups": progress.size_known(),
        "alive": progress.alive(),
        "step": progress.step(),
        "committed": progress.committed,
        "last_committed": progress.last_committed,
        "last_commit_s": waited,
        "steps_per_s": progress.steps_per_s(),
        "failures": progress.failures,
        "patches": progress.patches,
        "rejoins": progress.rejoins,
        "spares": progress.spares,
        "wipe_outs": progress.wipe_outs,
        "depth": progress.depth,
        "redundancy": progress.redundancy,
        "micro_batches": progress.micro_batches,
        "epoch": progress.epoch,
        "checkpoint": progress.checkpoint,
        "lighthouse_lost": progress.lighthouse_lost is not None,
        "states": progress.states(),
        "per_group": [
            _group_summary(progress, group, now_ns)
            for group in sorted(progress.groups.values(), key=lambda group: group.number)
        ],
        "events": progress.events,
        "files": follower.files,
        "damaged_lines": follower.damaged,
        "problems": [f"{path}: {why}" for path, why in follower.problems.items()],
    }


def _group_summary(progress: Progress, group: Group, now_ns: int) -> dict[str, Any]:
    event = _telling(group)
    return {
        "group": group.number,
        "state": progress.state(group),
        "step": None if group.step < 0 else group.step,
        "last_committed": group.committed,
        "parts": group.parts,
        "loss": _finite(group.loss),
        "step_ms": _finite(group.step_ms),
        "age_s": None if event is None else max(0, now_ns - event.time_ns) / 1e9,
        "event": None if event is None else event.event,
        "said": None if event is None else said(event, of=group.number),
    }


def _finite(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(value)
