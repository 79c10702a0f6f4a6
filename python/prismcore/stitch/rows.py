"""Measured ops of many ranks and steps as columns: what the other modules of this folder work on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Ints", "Rows", "last_before", "ordinals", "segment_reduce"]

Ints = npt.NDArray[np.int64]


@dataclass(kw_only=True, slots=True)
class Rows:
    """Ops in the order rank, step, launch; all arrays have shape [rows].

    A *lane* is an order that ops keep: a stream of the graph. Rows of one *launch* lie one after the
    other, begin together, and end with the last of them. Rows of one *meeting* (a collective, a
    message) are of different ranks.
    """

    rank: Ints
    step: Ints  #: from 0
    lane: Ints
    launch: Ints  #: first row of the launch
    start_ns: Ints  #: as measured, from the begin of the step
    end_ns: Ints

    @property
    def segment(self) -> Ints:
        """First row of the rank and step."""
        new = np.ones(len(self.rank), dtype=bool)
        new[1:] = (self.rank[1:] != self.rank[:-1]) | (self.step[1:] != self.step[:-1])
        return np.maximum.accumulate(np.where(new, np.arange(len(new)), 0))

    def some(self, chosen: Ints) -> Rows:
        """These rows alone, each a launch of its own."""
        return Rows(
            rank=self.rank[chosen],
            step=self.step[chosen],
            lane=self.lane[chosen],
            launch=np.arange(len(chosen)),
            start_ns=self.start_ns[chosen],
            end_ns=self.end_ns[chosen],
        )


def last_before(rows: Rows, chosen: npt.NDArray[np.bool_]) -> Ints:
    """For each row the last chosen one of its rank and step in an earlier launch; -1 for none."""
    places = np.where(chosen, np.arange(len(chosen)), -1)
    latest = np.empty(len(chosen) + 1, dtype=np.int64)
    latest[0] = -1
    np.maximum.accumulate(places, out=latest[1:])
    found = latest[rows.launch]
    return np.where(found >= rows.segment, found, -1)


def ordinals(groups: Ints) -> Ints:
    """For each row how many rows of its group stand before it."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    new = np.ones(len(groups), dtype=bool)
    new[1:] = ordered[1:] != ordered[:-1]
    places = np.arange(len(groups))
    out = np.empty(len(groups), dtype=np.int64)
    out[order] = places - np.maximum.accumulate(np.where(new, places, 0))
    return out


def segment_reduce(function: np.ufunc, values: Ints, groups: Ints) -> Ints:
    """``function`` over all values of a group, for each row; groups are numbered from 0 on, none empty."""
    if (groups[1:] >= groups[:-1]).all():  # launches lie in order
        ordered = groups
    else:
        order = np.argsort(groups, kind="stable")
        ordered, values = groups[order], values[order]
    reduced: Ints = function.reduceat(values, np.flatnonzero(np.diff(ordered, prepend=-1)))
    return reduced[groups]
