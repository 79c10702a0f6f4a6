"""The steps of a straggler-analysis trace, stitched: durations without waiting, gaps, and the graph.

The job it models: Megatron's pipeline schedules (1F1B, interleaved or not) with data-parallel
all-gathers of parameters and reduce-scatters of gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from prismcore.graph import Graph
from prismcore.replay import replay
from prismcore.stitch.meetings import Meetings, meet
from prismcore.stitch.programs import RowOps, build_graph
from prismcore.stitch.rows import Ints
from prismcore.stitch.timing import Timing, drop_circles, time_rows
from prismcore.stitch.typical import mean_timing
from prismcore.stitch.waits import Waits
from prismcore.traces.straggler import UNRECORDED, StragglerTrace
from prismcore.traces.straggler_meetings import find_meetings, name_ops
from prismcore.traces.straggler_rows import StragglerRows, order_rows
from prismcore.traces.straggler_unrecorded import add_unrecorded
from prismcore.traces.straggler_waits import find_waits

__all__ = ["MeasuredSteps", "straggler_steps"]

NEAR = 1e-3  # of the mean length, how much a typical step may be short
HALVINGS = 6


@dataclass(kw_only=True, slots=True)
class MeasuredSteps:
    """A trace, stitched. ``timing`` may be exchanged for another one of the same rows."""

    steps: list[int]  #: ids
    of: StragglerRows
    ops: RowOps
    meetings: Meetings
    waits: Waits
    timing: Timing
    measured_ns: Ints  #: [steps]: latest end less earliest begin
    warnings: list[str]
    typical_of: int | None = None  #: steps that this one stands for; None: these were measured
    own_share: float = 1.0  #: of the deviation of its durations and gaps from the mean over those steps

    def typical(self) -> MeasuredSteps:
        """One step with the durations and gaps that ops have in the mean: a prediction of others of the job.

        Order and waits are those of the step whose measured time is nearest to the mean. Ops that are slow
        at different times make up for each other in means, but not in steps, where others wait for each of
        them; so means alone replay too fast where ops vary. As much of that step's own deviation from the
        means is kept (``own_share``) as the mean length of the steps needs.
        """
        mean = mean_timing(self.of.rows, self._ops(), self.timing)
        step = self._nearest(mean, 0.0)
        wanted = (1 - NEAR) * float(self.measured_ns.mean())
        if _length(step) >= wanted:
            return step
        least, most = 0.0, 1.0
        for _ in range(HALVINGS):
            share = (least + most) / 2
            if _length(self._nearest(mean, share)) < wanted:
                least = share
            else:
                most = share
        return self._nearest(mean, most)

    def _ops(self) -> Ints:
        """Equal for rows of a rank that are the same op in different steps."""
        return self.of.operation * (int(self.of.number.max()) + 1) + self.of.number

    def _nearest(self, mean: Timing, own_share: float) -> MeasuredSteps:
        """The step nearest to the mean length, its timing between ``mean`` (0) and its own (1)."""
        at = int(np.argmin(np.abs(self.measured_ns - self.measured_ns.mean())))
        chosen = np.flatnonzero(self.of.rows.step == at)
        place = np.full(len(self.of.operation) + 1, -1, dtype=np.int64)  # its last: no row
        place[chosen] = np.arange(len(chosen))
        of = self.of.some(chosen, launch=place[self.of.rows.launch[chosen]])
        of.rows.step[:] = 0

        def between(means: Ints, own: Ints) -> Ints:
            found: Ints = np.rint(means[chosen] + own_share * (own[chosen] - means[chosen])).astype(np.int64)
            return found

        return MeasuredSteps(
            steps=[self.steps[at]],
            of=of,
            ops=self.ops.some(chosen),
            meetings=meet(self.meetings.id[chosen]),
            waits=place[self.waits[chosen]],
            timing=Timing(
                gap_ns=between(mean.gap_ns, self.timing.gap_ns),
                duration_ns=between(mean.duration_ns, self.timing.duration_ns),
            ),
            measured_ns=self.measured_ns[at : at + 1],
            warnings=self.warnings,
            typical_of=len(self.steps),
            own_share=own_share,
        )

    def graph(self) -> Graph:
        """The steps as iterations of a graph."""
        places, first = np.unique(self.of.rows.rank, return_index=True)
        ranks = places.tolist()
        metadata: dict[str, Any] = {
            "imported_from": "straggler",
            "workers": {
                "rank": ranks,
                "dp_rank": self.of.dp_rank[first].tolist(),
                "stage": self.of.stage[first].tolist(),
            },
            "unrecorded_meetings": [o.label for o in UNRECORDED if len(self.of.of(o))],
            "notes": self.warnings,
        }
        if self.typical_of is None:
            metadata["measured_iteration_time_ns"] = self.measured_ns.tolist()
            labels = [f"step {s}" for s in self.steps]
        else:  # no step that was measured
            metadata["typical_of_steps"] = self.typical_of
            metadata["typical_own_share"] = self.own_share
            labels = [f"typical of {self.typical_of} steps"]
        return build_graph(
            self.of.rows,
            self.ops,
            self.waits,
            self.timing,
            world_size=max(self.of.sizes.world, ranks[-1] + 1),
            steps=labels,
            metadata=metadata,
        )


def _length(step: MeasuredSteps) -> int:
    return int(replay(step.graph()).iteration_time_ns[0])


def straggler_steps(trace: StragglerTrace) -> MeasuredSteps:
    """Stitches a trace. What cannot be matched, or contradicts the model, is told in ``warnings``."""
    warnings = list(trace.warnings)
    of = order_rows(add_unrecorded(trace, warnings))
    meetings = find_meetings(of, warnings)
    waits = find_waits(of, warnings)
    circles = drop_circles(of.rows, waits, meetings)
    if circles:
        warnings.append(f"{circles:,} waits between streams that close a circle over ranks are left out")
    timing = time_rows(of.rows, waits, meetings)
    warnings += timing.warnings
    return MeasuredSteps(
        steps=trace.steps,
        of=of,
        ops=name_ops(of, meetings, warnings),
        meetings=meetings,
        waits=waits,
        timing=timing,
        measured_ns=trace.step_time_ns(),
        warnings=warnings,
    )
