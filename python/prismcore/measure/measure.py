"""Runs the measuring program on a device, and makes samples of what it found."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from prismcore.calibrate import Samples
from prismcore.collect import CollectOptions, collect
from prismcore.errors import CollectError, MeasureError, RankFailedError
from prismcore.graph import Graph
from prismcore.launch.environment import rank_environment
from prismcore.launch.processes import kill_group
from prismcore.measure.findings import Timing, timings
from prismcore.measure.samples import samples_of_report
from prismcore.measure.shapes import PRESETS, LayerShape

__all__ = ["MeasureOptions", "Measured", "measure"]

_PROGRAM: Final = "prismcore.measure.program"
_GRACE_S: Final = 60.0  # beyond the time that was given, for imports and the end
_SHOWN: Final = 300
_COLLECTIVES: Final = "prismcore.measure.collectives"
_COLLECTIVES_SHARE: Final = 0.2  # of the time
_MOST_GPUS: Final = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasureOptions:
    """What to measure, and for how long.

    ``device``: ``cuda``, ``cuda:N``, or a virtual one (``virtual:NAME`` or a TOML file). ``cluster``: file of
    the cluster profile of a virtual one; None: the one that belongs to it. ``seconds``: of the measuring
    program, its imports left out. ``shapes``: most wanted first. ``gpus``:
    of this machine, that collectives are measured between; None: all that CUDA shows, one where virtual.

    Raises:
        MeasureError: a device that cannot be, or no time.
    """

    device: str = "cuda"
    cluster: Path | None = None
    seconds: float = 300.0
    shapes: Sequence[LayerShape] = tuple(PRESETS.values())
    repeats: int = 7
    gpus: int | None = None

    def __post_init__(self) -> None:
        if self.is_real and self.index is None:
            raise MeasureError(f"device {self.device!r} found, expected cuda, cuda:N, virtual:NAME or a file")
        if self.seconds <= 0:
            raise MeasureError(f"{self.seconds:g} s found, expected a time above 0")
        if self.gpus is not None and not 1 <= self.gpus <= _MOST_GPUS:
            raise MeasureError(f"{self.gpus} GPUs found, expected 1 to {_MOST_GPUS}")
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
    alone = options.gpus == 1 or (options.gpus is None and not options.is_real)
    seconds = options.seconds * (1.0 if alone else 1 - _COLLECTIVES_SHARE)
    with tempfile.TemporaryDirectory(prefix="prism-profile-") as folder:
        out, traces = Path(folder) / "report.json", Path(folder) / "traces"
        arguments = [*_arguments(options, out), "--seconds", str(seconds)]
        if options.is_real:
            traces.mkdir()
            graph = None
            arguments += ["--traces", str(traces), "--index", str(options.index)]
            _run_real(options, _PROGRAM, arguments, out, ranks=[{}], seconds=seconds)
        else:
            graph = _run_virtual(options, _PROGRAM, arguments, out, world=1, seconds=seconds)
        report = _read(out)
        if report is None or "error" in report:
            raise _failure(options, report)
        report["collectives"] = _collectives(options, report, Path(folder) / "collectives.json")
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
    words = ["--out", str(out), "--repeats", str(options.repeats)]
    return [*words, *(word for shape in options.shapes for word in ("--shape", shape.text()))]


def _collectives(options: MeasureOptions, report: dict[str, Any], out: Path) -> list[dict[str, Any]]:
    """Of all GPUs; none where there is one, or they fail: then ``dropped`` says so."""
    gpus = options.gpus or (report["device"]["devices"] if options.is_real else 1)
    if gpus < 2:
        return []
    seconds = options.seconds * _COLLECTIVES_SHARE
    arguments = ["--out", str(out), "--repeats", str(options.repeats), "--seconds", str(seconds)]
    try:
        if options.is_real:
            port = str(_free_port())
            ranks = [{**rank_environment(r, gpus, gpus), "MASTER_PORT": port} for r in range(gpus)]
            _run_real(options, _COLLECTIVES, arguments, out, ranks=ranks, seconds=seconds)
        else:
            _run_virtual(options, _COLLECTIVES, arguments, out, world=gpus, seconds=seconds)
        found = _read(out)
    except (MeasureError, CollectError) as error:
        report["dropped"].append({"point": f"collectives of {gpus} GPUs", "why": str(error)})
        return []
    return [] if found is None else list(found["collectives"])


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def _run_virtual(
    options: MeasureOptions, program: str, arguments: list[str], out: Path, *, world: int, seconds: float
) -> Graph | None:
    """Rank 0 of the program. None where it failed and says why in its report."""
    try:
        return collect(
            CollectOptions(
                command=["-m", program, *arguments],
                world_size=world,
                device=options.device,
                cluster=options.cluster,
                ranks="0",
                slots=1,
                iterations=1,
                rank_timeout_s=seconds + _GRACE_S,
            )
        ).graph
    except RankFailedError:
        if (report := _read(out)) is not None and "error" in report:
            return None
        raise


def _run_real(
    options: MeasureOptions,
    program: str,
    arguments: list[str],
    out: Path,
    *,
    ranks: Sequence[Mapping[str, str]],
    seconds: float,
) -> None:
    """One process for each of ``ranks``, which are their environments."""
    command = [sys.executable, "-m", program, *arguments, "--parent", str(os.getpid())]
    deadline = time.monotonic() + seconds + _GRACE_S
    children: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryFile() as said:
        try:
            for environment in ranks:
                children.append(
                    subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=said,
                        stderr=said,
                        start_new_session=True,
                        env={**os.environ, **environment},
                    )
                )
            statuses = [child.wait(timeout=max(deadline - time.monotonic(), 0.1)) for child in children]
        except subprocess.TimeoutExpired:
            raise MeasureError(
                f"{options.device}: the measuring program did not end {_GRACE_S:g} s after its time, "
                "expected a device that answers (nvidia-smi tells)"
            ) from None
        finally:
            for child in children:
                if child.poll() is None:
                    kill_group(child.pid, leader_lives=True)
                    child.wait()
        status = next((status for status in statuses if status), 0)
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
