"""Draws a plan: time to train, availability and computation over redundancy (matplotlib)."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from prismcore.errors import SpareError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

__all__ = ["SUFFIXES", "Curve", "Point", "check_plot", "check_suffix", "draw"]

SUFFIXES = ("png", "svg", "pdf")

# Okabe and Ito's palette: told apart by colour-blind readers; marker and dash tell apart in grey.
_STYLES: tuple[tuple[str, str, Any], ...] = (
    ("#0072B2", "o", "-"),
    ("#D55E00", "s", (0, (4, 1.5))),
    ("#009E73", "^", (0, (1, 1))),
)
_RING: dict[str, Any] = {
    "marker": "o",
    "markersize": 13,
    "markerfacecolor": "none",
    "markeredgecolor": "#222222",
    "markeredgewidth": 1.6,
    "linestyle": "none",
}


@dataclass(kw_only=True, slots=True, frozen=True)
class Point:
    """One redundancy of a curve. Ratios and shards as numbers, availability as a share."""

    redundancy: int
    ttt_ratio: float
    availability: float
    compute: float
    """Shards that the slowest group computes in a step."""
    ci95: float = 0.0
    """Half width of the interval of ``ttt_ratio``; 0 for a prediction."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Curve:
    """Predicted points make the line, simulated ones are marked on it."""

    label: str
    predicted: Sequence[Point]
    simulated: Sequence[Point] = ()


def check_suffix(path: Path) -> None:
    """Raises SpareError when the suffix names no format that can be drawn."""
    if path.suffix.lower().removeprefix(".") not in SUFFIXES:
        found = repr(path.suffix) if path.suffix else "no suffix"
        raise SpareError(f"{path}: found {found}, expected .png, .svg or .pdf")


def check_plot(path: Path) -> None:
    """Raises SpareError when nothing can be drawn into ``path``; better now than after the work."""
    check_suffix(path)
    if importlib.util.find_spec("matplotlib") is None:
        raise SpareError("matplotlib is not installed, and plots need it: pip install 'prismcore[plot]'")


def draw(
    out: BinaryIO,
    format: str,
    *,
    title: str,
    subtitle: str,
    available: str,
    curves: Sequence[Curve],
    chosen: Point | None = None,
) -> None:
    """Writes the figure to ``out``; ``format`` is one of :data:`SUFFIXES`. ``available`` says what
    availability counts. Same input, same bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    with mpl.rc_context(_RC):
        figure = Figure(figsize=(11.5, 4.9), dpi=150)
        panels: list[Axes] = list(figure.subplots(1, 3))
        for axes, (name, what, unit) in zip(panels, _PANELS, strict=True):
            _panel(axes, name, curves, chosen)
            axes.set_title(what, loc="left", fontsize=11, fontweight="bold")
            axes.set_ylabel(unit or available)
            axes.set_xlabel("redundancy r: shards that a group hosts")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
            if name == "availability":
                axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:.0f}"))
        for axes, name in ((panels[0], "ttt_ratio"), (panels[2], "compute")):
            _limit(axes, [getattr(p, name) for c in curves for p in (*c.predicted, *c.simulated)])
        figure.text(0.012, 0.965, title, fontsize=13, fontweight="bold", va="top")
        figure.text(0.012, 0.905, subtitle, fontsize=9.5, color="#555555", va="top", linespacing=1.5)
        figure.legend(
            handles=_legend(curves, chosen),
            loc="lower center",
            ncols=len(curves) + (chosen is not None),
            frameon=False,
            handlelength=3,
            columnspacing=2.5,
        )
        figure.subplots_adjust(left=0.06, right=0.985, top=0.755, bottom=0.215, wspace=0.24)
        figure.savefig(out, format=format, metadata=_METADATA.get(format))


_PANELS = (
    ("ttt_ratio", "Time to train", "times that without failures"),
    ("availability", "Availability", ""),
    ("compute", "Computation", "shards a step, slowest group"),
)
_RC: Any = {
    "svg.hashsalt": "prismcore",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.edgecolor": "#888888",
    "xtick.color": "#444444",
    "ytick.color": "#444444",
}
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": "prismcore"},
    "svg": {"Date": None, "Creator": "prismcore"},
    "pdf": {"CreationDate": None, "Creator": "prismcore", "Producer": None},
}


def _panel(axes: Axes, name: str, curves: Sequence[Curve], chosen: Point | None) -> None:
    # The first curve is the chosen one: it lies on top, with the smaller marks.
    for order, ((colour, marker, dash), curve) in enumerate(zip(_STYLES, curves, strict=False)):
        axes.plot(
            [p.redundancy for p in curve.predicted],
            [getattr(p, name) for p in curve.predicted],
            color=colour,
            linestyle=dash,
            linewidth=1.8,
            zorder=3 - 0.1 * order,
        )
        if curve.simulated:
            axes.errorbar(
                [p.redundancy for p in curve.simulated],
                [getattr(p, name) for p in curve.simulated],
                yerr=[p.ci95 for p in curve.simulated] if name == "ttt_ratio" else None,
                color=colour,
                marker=marker,
                markersize=5.5 + order,
                zorder=4 - 0.1 * order,
                markeredgecolor="white",
                linestyle="none",
                capsize=3,
                elinewidth=1.2,
            )
    if chosen is not None:
        axes.plot(
            [chosen.redundancy],
            [getattr(chosen, name)],
            zorder=5,
            **_RING,
        )


def _legend(curves: Sequence[Curve], chosen: Point | None) -> list[Line2D]:
    """One entry a curve: its line and its marker."""
    from matplotlib.lines import Line2D

    entries = [
        Line2D(
            [],
            [],
            color=colour,
            linestyle=dash,
            linewidth=1.8,
            marker=marker if curve.simulated else None,
            markeredgecolor="white",
            label=curve.label,
        )
        for (colour, marker, dash), curve in zip(_STYLES, curves, strict=False)
    ]
    if chosen is not None:
        entries.append(Line2D([], [], label="chosen", **_RING))
    return entries


def _limit(axes: Axes, values: Sequence[float]) -> None:
    """The lower part of the curves: replication at a large r would flatten all else."""
    low = min(values)
    axes.set_ylim(max(0.0, low - 0.35 * low), min(max(values) * 1.05, 5 * low))
