"""How far off a predicted iteration time may be: what predictions of its kind were off by.

The comparisons are those of benchmarks/accuracy/run.py, which writes ``accuracy_bands.json`` from the
rows of its table that say which predictions they stand for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prismcore.graph import Graph
from prismcore.report.accuracy import uncompared
from prismcore.report.case import OWN_STEPS, Case, case_of
from prismcore.report.table_use import table_warnings

if TYPE_CHECKING:
    from prismcore.profiles.cluster import ClusterProfile
    from prismcore.profiles.device import DeviceProfile

__all__ = ["ExpectedError", "expected_error"]

NO_PREDICTION = "measured steps replayed as they were; this predicts no others"
BANDS = Path(__file__).with_name("accuracy_bands.json")


@dataclass(kw_only=True, slots=True, frozen=True)
class ExpectedError:
    """Absolute errors of comparable predictions, percent of what was measured; None: there are none."""

    basis: str  #: what was compared; where nothing was: why not
    mean_percent: float | None = None  #: over all points
    worst_percent: float | None = None
    points: int = 0
    data_sets: Sequence[str] = ()
    warnings: list[str] = field(default_factory=list)  #: models in use without comparison, tables without use

    def to_json(self) -> dict[str, Any]:
        """The key ``expected_error`` of ``--json``."""
        fields = asdict(self)
        del fields["warnings"]
        return {"covered": self.points > 0, **fields}

    def beside_provenance(
        self, report: Mapping[str, Any], *, untimed_launches: int | None = None
    ) -> dict[str, Any]:
        """A report with ``expected_error``, and ``untimed_launches`` where given, behind its
        ``provenance``."""
        out: dict[str, Any] = {}
        for key, value in report.items():
            out[key] = value
            if key == "provenance":
                out["expected_error"] = self.to_json()
                if untimed_launches is not None:
                    out["untimed_launches"] = untimed_launches
        return out

    def words(self) -> str:
        """One line for a table."""
        if self.mean_percent is None or self.worst_percent is None:
            return f"not known: {self.basis}"
        return (
            f"{self.mean_percent:.2f} % in the mean, {self.worst_percent:.2f} % at worst "
            f"({self.points:,} points of {', '.join(self.data_sets)}): {self.basis}"
        )


def expected_error(
    graph: Graph,
    *,
    device: DeviceProfile | None = None,
    cluster: ClusterProfile | None = None,
    change: str | None = None,
    iteration_ns: int | None = None,
) -> ExpectedError:
    """What is known of the error of an iteration's time.

    Args:
        graph: what is replayed.
        device, cluster: that a replay costs anew with; None: as recorded.
        change: what else makes the replay another job than the graph's, as ``perturbations``; None:
            nothing does.
        iteration_ns: what was predicted; None: not yet.
    """
    found = _expected(graph, device, cluster, change, iteration_ns)
    found.warnings[:0] = table_warnings(graph, device)
    return found


def _expected(
    graph: Graph,
    device: DeviceProfile | None,
    cluster: ClusterProfile | None,
    change: str | None,
    iteration_ns: int | None,
) -> ExpectedError:
    models = uncompared(graph, device=device, cluster=cluster)
    if models:
        what = ", ".join(models)
        return ExpectedError(
            basis=f"no measurement of {what}",
            warnings=[f"not compared with measurements: {what}; take times as estimates (docs/accuracy.md)"],
        )
    case = case_of(graph, device=device, cluster=cluster)
    if isinstance(case, str):
        return ExpectedError(basis=case)
    if change is not None:
        return ExpectedError(basis=f"no run with {change} was measured")
    found = [band for band in _bands() if case.is_covered_by(band["covers"])]
    if not found:
        return ExpectedError(basis=f"no {case} was compared with its run as a whole")
    if outside := _outside(found, case, iteration_ns):
        return ExpectedError(basis=outside)
    points = sum(band["points"] for band in found)
    return ExpectedError(
        basis=NO_PREDICTION
        if case.prediction == OWN_STEPS
        else "; ".join(dict.fromkeys(band["what"] for band in found)),
        mean_percent=sum(band["mean"] * band["points"] for band in found) / points,
        worst_percent=max(band["worst"] for band in found),
        points=points,
        data_sets=list(dict.fromkeys(band["data_set"] for band in found)),
    )


def _bands() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(BANDS.read_text(encoding="utf-8"))
    return found


def _outside(found: Sequence[Mapping[str, Any]], case: Case, iteration_ns: int | None) -> str:
    """Why a prediction is not like those that were compared, in size; empty: it is."""
    fewest = min(band["covers"].get("least_steps", 0) for band in found)
    if (case.steps or 0) < fewest:
        return f"steps typical of {fewest} or more were compared, this one is of {case.steps or 0}"
    spans = [band["covers"]["within_ms"] for band in found if "within_ms" in band["covers"]]
    if spans and iteration_ns is not None:
        low, high = min(span[0] for span in spans), max(span[1] for span in spans)
        if not low <= iteration_ns / 1e6 <= high:
            return f"iterations of {low:,.0f} to {high:,.0f} ms were compared, this one is outside"
    return ""
