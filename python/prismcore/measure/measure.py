"""Runs the measuring program on a device, and makes samples of what it found."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from prismcore.calibrate import Samples
from prismcore.collect import CollectOptions, collect
from prismcore.errors import CollectError, MeasureError, RankFailedError
from prismcore.graph import Graph
from prismcore.launch.processes import kill_group
from prismcore.measure.findings import Timing, timings
from prismcore.measure.samples import samples_of_report
from prismcore.measure.shapes import PRESETS, LayerShape

__all__ = ["MeasureOptions", "Measured", "measure"]

_PROGRAM: Final = "prismcore.measure.program"
_GRACE_S: Final = 60.0  # beyond the time that was given, for imports and the end
_SHOWN: Final = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasureOptions:
    """What to measure, and for how long.

    ``device``: ``cuda``, ``cuda:N``, or a virtual one (``virtual:NAME`` or a TOML file). ``cluster``: file of
    the cluster profile of a virtual one; None: the one that belongs to it. ``seconds``: of the measuring
    program, its imports left out. ``shapes``: most wanted first.

    Raises:
        MeasureError: a device that cannot be, or no time.
    """

    device: str = "cuda"
    cluster: Path | None = None
    seconds: float = 300.0
    shapes: Sequence[LayerShape] = tuple(PRESETS.values())
    repeats: int = 7

    def __post_init__(self) -> None:
        if self.is_real and self.index is None:
            raise MeasureError(f"device {self.device!r} found, expected cuda, cuda:N, virtual:NAME or a file")
        if self.seconds <= 0:
            raise MeasureError(f"{self.seconds:g} s found, expected a time above 0")
        if self.repeats < 3:
            raise MeasureError(f"{self.repeats} repeats found, expected 3 or more")

    @property
    def is_real(self) -> bool:
        return self.device.partition(":")[0] == "cuda"

    @property
    def index(self) -> int | None:
        """Of a real device among those that CUDA shows."""
        _, colon, number = self.device.partition(":")
        if not colon:
            return 0
        return int(number) if number.isascii() and number.isdigit() and len(number) < 4 else None


@dataclass(kw_only=True, slots=True)
class Measured:
    """``facts``: of the device, as torch told them. ``dropped``: what was not measured, and why."""

    samples: Samples
    facts: dict[str, Any]
    timings: list[Timing]
    dropped: list[dict[str, str]]
    torch: str
    warnings: list[str] = field(default_factory=list)


def measure(options: MeasureOptions) -> Measured:
    """Measures a device.

    Raises:
        MeasureError: no torch, no such device, it is taken or has no memory, or the program failed.
        CollectError: the virtual GPU cannot run here.
        ProfileError: no such profile.
    """
    if importlib.util.find_spec("torch") is None:
        raise MeasureError("no torch found, expected one built for CUDA: pip install 'prismcore[torch]'")
    with tempfile.TemporaryDirectory(prefix="prism-profile-") as folder:
        out, traces = Path(folder) / "report.json", Path(folder) / "traces"
        if options.is_real:
            traces.mkdir()
            graph = None
            _run_real(options, out, traces)
        else:
            graph = _run_virtual(options, out)
        report = _read(out)
        if report is None or "error" in report:
            raise _failure(options, report)
        samples = samples_of_report(report, graph)
    return Measured(
        samples=samples,
        facts=report["device"],
        timings=timings(report, samples),
        dropped=report["dropped"],
        torch=report["torch"],
        warnings=[*report["notes"], *_doubts(report)],
    )


def _arguments(options: MeasureOptions, out: Path) -> list[str]:
    words = ["--out", str(out), "--seconds", str(options.seconds), "--repeats", str(options.repeats)]
    return [*words, *(word for shape in options.shapes for word in ("--shape", shape.text()))]


def _run_virtual(options: MeasureOptions, out: Path) -> Graph | None:
    """None where the program failed and says why in its report."""
    try:
        return collect(
            CollectOptions(
                command=["-m", _PROGRAM, *_arguments(options, out)],
                world_size=1,
                device=options.device,
                cluster=options.cluster,
                ranks="all",
                slots=1,
                iterations=1,
                rank_timeout_s=options.seconds + _GRACE_S,
            )
        ).graph
    except RankFailedError:
        if (report := _read(out)) is not None and "error" in report:
            return None
        raise


def _run_real(options: MeasureOptions, out: Path, traces: Path) -> None:
    command = [sys.executable, "-m", _PROGRAM, *_arguments(options, out)]
    command += ["--traces", str(traces), "--index", str(options.index), "--parent", str(os.getpid())]
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
        )
        try:
            status = child.wait(timeout=options.seconds + _GRACE_S)
        except subprocess.TimeoutExpired:
            raise MeasureError(
                f"{options.device}: the measuring program did not end {_GRACE_S:g} s after its time, "
                "expected a device that answers (nvidia-smi tells)"
            ) from None
        finally:
            if child.poll() is None:
                kill_group(child.pid, leader_lives=True)
                child.wait()
        if status and _read(out) is None:
            said.seek(max(said.seek(0, os.SEEK_END) - 4096, 0))
            lines = said.read().decode("utf-8", "replace").strip().splitlines()
            how = f"exit code {status}" if status > 0 else f"signal {-status}"
            last = lines[-1][:_SHOWN] if lines else "it said nothing"
            raise MeasureError(f"{options.device}: the measuring program failed ({how}): {last}")


def _read(out: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found


def _failure(options: MeasureOptions, report: dict[str, Any] | None) -> MeasureError | CollectError:
    if report is None:
        return MeasureError(f"{options.device}: the measuring program left no report, expected one")
    kind, text = report["error"]["kind"], report["error"]["text"]
    if kind == "no_device":
        return MeasureError(
            "no CUDA device found, expected one that torch can use; without one use --device virtual:NAME "
            f"(virtual:h100): {text}"
        )
    if kind == "out_of_memory":
        return MeasureError(
            f"{options.device}: no memory for the first measurements, expected a device that nobody else "
            f"uses: {text[:_SHOWN]}"
        )
    return MeasureError(
        f"{options.device}: the device failed or is taken, expected one that nobody else uses: "
        f"{text[:_SHOWN]}"
    )


def _doubts(report: dict[str, Any]) -> list[str]:
    out = []
    device = report["device"]
    taken = 1 - device["free_bytes"] / device["memory_bytes"]
    if taken > 0.1:
        out.append(
            f"{taken:.0%} of the device's memory was taken before the first measurement: another program may "
            "have run beside this one"
        )
    uncovered = [entry for entry in report["points"] if not entry["covered"]]
    if uncovered:
        out.append(
            f"{len(uncovered):,} calls were issued slower than the device ran them: their event times hold "
            "host time (no row of the table does)"
        )
    return out
