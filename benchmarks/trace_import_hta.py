"""The import of a job's traces beside HolisticTraceAnalysis, which reads them into data frames.

For ``trace_import.py --hta``: both as commands of their own, in turn; wall and processor time of the
whole command (start of Python and imports included, its workers too), and wall time of the load alone.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

OURS = """
import sys, time
from prismcore.traces.kineto import read_kineto_set, stitch_kineto
begin = time.perf_counter()
stitch_kineto(read_kineto_set(sys.argv[2:])).graph().save(sys.argv[1])
print(time.perf_counter() - begin)
"""
THEIRS = """
import logging, sys, time
logging.disable(logging.WARNING)
from hta.trace_analysis import TraceAnalysis
begin = time.perf_counter()
TraceAnalysis(trace_files=dict(enumerate(sys.argv[2:])), trace_dir="")
print(time.perf_counter() - begin)
"""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds: of the whole command, and of the load alone; medians of all runs."""

    wall_s: float
    processor_s: float
    load_s: float


def run(python: str, program: str, *arguments: str) -> tuple[float, float, float]:
    begin = time.perf_counter()
    process = subprocess.Popen(
        [python, "-c", program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with process.stdout:
        shown = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{python}: ended with {process.returncode}; expected one with HolisticTraceAnalysis")
    return wall, used.ru_utime + used.ru_stime, float(shown.split()[-1])


def side_by_side(python: str, paths: Sequence[str], repeats: int) -> dict[str, Any]:
    """``Times`` of both, ratios, and the load of the machine. ``python``: an interpreter that has it."""
    sides = {"prismcore": (sys.executable, OURS), "HolisticTraceAnalysis": (python, THEIRS)}
    taken: dict[str, list[tuple[float, float, float]]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(repeats + 1):
            for name, (interpreter, program) in sides.items():
                times = run(interpreter, program, f"{folder}/job.prism", *paths)
                if number:  # the first fills the caches of files and of byte code
                    taken[name].append(times)
    found = {
        name: asdict(Times(*(round(statistics.median(column), 3) for column in zip(*rows, strict=True))))
        for name, rows in taken.items()
    }
    ours, theirs = found.values()
    ratios = {key: round(theirs[key] / ours[key], 1) for key in ours}
    return {**found, "ratios": ratios, "repeats": repeats, "load": round(os.getloadavg()[0], 1)}


def lines(found: dict[str, Any]) -> list[str]:
    """For people."""
    out = [f"8-rank job, medians of {found['repeats']} runs in turn, load {found['load']}:"]
    for name in ("prismcore", "HolisticTraceAnalysis", "ratios"):
        times = found[name]
        out.append(
            f"  {name:22}  command {times['wall_s']:.2f}, its processor time {times['processor_s']:.2f}, "
            f"load alone {times['load_s']:.2f}"
        )
    return out
