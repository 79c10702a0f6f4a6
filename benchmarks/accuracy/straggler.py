"""The two production jobs of the straggler analysis (docs/accuracy.md): steps, what-if, prediction."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

from results import AbsentError, Row, row

import prismcore
from prismcore.stragglers import StragglerReport, analyse
from prismcore.traces.job_sizes import read_job_sizes
from prismcore.traces.straggler import StragglerTrace, read_straggler
from prismcore.traces.straggler_steps import straggler_steps

JOBS = ("AR", "ST")
FILES = (("trace", "parquet"), ("meta", "yaml"), ("result", "json"), ("mw", "json"), ("ms", "json"))


def rows(data: Path) -> list[Row]:
    """Per job: replay of each step, prediction of odd steps from even ones, published what-if results."""
    folder = data / "straggler"
    for name in (f"{kind}-{job}.{ending}" for job in JOBS for kind, ending in FILES):
        if not (folder / name).exists():
            raise AbsentError(f"{folder.name}/{name} is not there")
    out = []
    for job in JOBS:
        trace = read_straggler(folder / f"trace-{job}.parquet", read_job_sizes(folder / f"meta-{job}.yaml"))
        published = json.loads((folder / f"result-{job}.json").read_text())
        shares = {
            k: json.loads((folder / f"{k}-{job}.json").read_text())[k.capitalize()] for k in ("mw", "ms")
        }
        out += job_rows(f"straggler {job}", trace, published, shares)
    return out


def job_rows(name: str, trace: StragglerTrace, published: dict, shares: dict[str, float]) -> list[Row]:
    actual = [1e9 * published["step_t_base"][str(step)] for step in trace.steps]
    graph = straggler_steps(trace).graph()
    replayed = prismcore.replay(graph)
    report = analyse(graph)
    provenance = replayed.provenance
    consistency = list(zip(replayed.iteration_time_ns.tolist(), actual, strict=True))

    even = straggler_steps(trace.only(range(0, len(trace.steps), 2))).typical()
    typical = prismcore.replay(even.graph())
    odd = actual[1::2]
    predicted = float(typical.iteration_time_ns[0])
    plain = statistics.fmean(actual[0::2])
    return [
        row(
            name,
            "consistency: each step with its own durations and gaps",
            consistency,
            provenance=provenance,
            note="no prediction",
            covers={"prediction": "own steps", "source": "straggler"},
        ),
        row(
            name,
            "prediction: odd steps from a typical one of the even ones",
            [(predicted, t) for t in odd],
            provenance=typical.provenance,
            note=f"predicted {predicted / 1e9:.3f} s",
            covers={
                "prediction": "other steps",
                "source": "straggler",
                "least_steps": -(-len(trace.steps) // 2),
            },
        ),
        row(
            name,
            "beside it: odd steps by the plain mean of even ones",
            [(plain, t) for t in odd],
            provenance={},
            note=f"mean {plain / 1e9:.3f} s; no model",
        ),
        row(
            name,
            "what-if: S, all stragglers removed",
            [(report.slowdown, published["blocking_slowdown"])],
            provenance=provenance,
            note=f"{report.slowdown:.3f}, published {published['blocking_slowdown']:.3f}",
        ),
        *(
            row(
                name,
                f"what-if: slowdowns by {what}",
                [
                    (found[key], value)
                    for key, value in published[f"blocking_decompose_by_{axis}"].items()
                    if key in found
                ],
                provenance=provenance,
            )
            for what, axis, found in groups(report)
        ),
        *(
            row(
                name,
                f"what-if: {what}",
                [(found, shares[key])],
                provenance=provenance,
                note=f"{100 * found:.2f} %, published {100 * shares[key]:.2f} %",
            )
            for what, key, found in (
                ("M_W, share of the slowest workers", "mw", report.m_slowest_workers),
                ("M_S, share of the last stage", "ms", report.m_last_stage),
            )
            if found is not None
        ),
    ]


def groups(report: StragglerReport) -> tuple[tuple[str, str, dict[str, float]], ...]:
    """Slowdowns as published: gc, which took no time, is not among ours."""
    return (
        ("operation", "optype", report.by_operation),
        ("stage", "stage", {str(k): v for k, v in report.by_stage.items()}),
        ("data-parallel rank", "dp_rank", {str(k): v for k, v in report.by_dp_rank.items()}),
    )
