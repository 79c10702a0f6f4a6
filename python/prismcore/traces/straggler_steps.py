"""The steps of a straggler-analysis trace, stitched: durations without waiting, gaps, and the graph.

The job it models: Megatron's pipeline schedules (1F1B, interleaved or not) with data-parallel
all-gathers of parameters and reduce-scatters of gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from prismcore.graph import Graph
from prismcore.stitch.meetings import Meetings, meet
from prismcore.stitch.programs import RowOps, build_graph
from prismcore.stitch.rows import Ints
from prismcore.stitch.timing import Timing, drop_circles, time_rows
from prismcore.stitch.typical import mean_timing
from prismcore.stitch.waits import Waits
from prismcore.traces.straggler import StragglerTrace
from prismcore.traces.straggler_meetings import find_meetings, name_ops
from prismcore.traces.straggler_rows import StragglerRows, order_rows
from prismcore.traces.straggler_waits import find_waits

__all__ = ["MeasuredSteps", "straggler_steps"]


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
    typical_of: int | None = None  #: steps that these durations are means of; None: they are measured

    def typical(self) -> MeasuredSteps:
        """One step with the mean durations and gaps of all: a prediction of others of the job.

        Order and waits are those of the step whose measured time is nearest to the mean.
        """
        ops = self.of.operation * (int(self.of.number.max()) + 1) + self.of.number
        timing = mean_timing(self.of.rows, ops, self.timing)
        at = int(np.argmin(np.abs(self.measured_ns - self.measured_ns.mean())))
        chosen = np.flatnonzero(self.of.rows.step == at)
        place = np.full(len(ops) + 1, -1, dtype=np.int64)  # its last: no row
        place[chosen] = np.arange(len(chosen))
        of = self.of.some(chosen, launch=place[self.of.rows.launch[chosen]])
        of.rows.step[:] = 0
        return MeasuredSteps(
            steps=[self.steps[at]],
            of=of,
            ops=self.ops.some(chosen),
            meetings=meet(self.meetings.id[chosen]),
            waits=place[self.waits[chosen]],
            timing=Timing(gap_ns=timing.gap_ns[chosen], duration_ns=timing.duration_ns[chosen]),
            measured_ns=self.measured_ns[at : at + 1],
            warnings=self.warnings,
            typical_of=len(self.steps),
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
            "notes": self.warnings,
        }
        if self.typical_of is None:
            metadata["measured_iteration_time_ns"] = self.measured_ns.tolist()
            labels = [f"step {s}" for s in self.steps]
        else:  # no step that was measured
            metadata["typical_of_steps"] = self.typical_of
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


def straggler_steps(trace: StragglerTrace) -> MeasuredSteps:
    """Stitches a trace. What cannot be matched, or contradicts the model, is told in ``warnings``."""
    warnings = list(trace.warnings)
    of = order_rows(trace)
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
