"""What is measured: one function a kind of row. All take the setting, and give figures by name."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shutil
import statistics
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kernels import compare
from rows import FailedError, NotBuiltError, Runner

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

#: Parts of a real GPU that say for themselves how good they are: ``module:function``, which takes the seconds
#: that it may last and gives figures by name.
ENTRIES = {
    "pacing kernel": "prismcore.device.pacing:measure",
    "SM occupancy": "prismcore.device.occupancy:measure",
    "recording overhead": "prismcore.device.recording:measure",
}


@dataclass(kw_only=True)
class Setting:
    """``dry``: a virtual GPU stands for the real one. ``shape``: of the program's layers."""

    runner: Runner
    work: Path
    dry: bool
    program: list[str]
    shape: str
    profile_minutes: float
    pause_s: float = 2.0

    @property
    def device(self) -> str:
        return "virtual:h100" if self.dry else "cuda"

    @property
    def profile(self) -> Path:
        return self.work / "own.toml"

    @property
    def graph(self) -> Path:
        return self.work / "one.prism"

    @cached_property
    def cluster(self) -> str:
        """That the measured GPU belongs to: of the shipped profile that its own extends."""
        from prismcore.profiles.cluster import default_cluster_for

        text = (self.profile.read_text() if self.profile.is_file() else 'base = "h100"').splitlines()
        base = next(line.split('"')[1] for line in text if line.startswith("base"))
        return default_cluster_for(base)

    def virtual(self) -> list[str]:
        """Flags of a collection on the virtual GPU that is what was measured."""
        if not self.profile.is_file():
            raise FailedError("there is no profile of this device: the row 'profile' failed")
        return ["--device", str(self.profile), "--cluster", self.cluster]


def ctest(setting: Setting) -> dict[str, Any]:
    """The device tests in C++."""
    build = ROOT / "build" / "release"
    if not (build / "CTestTestfile.cmake").is_file() or shutil.which("ctest") is None:
        raise NotBuiltError("no C++ tests here (make build)")
    return _tests(setting, ["ctest", "--test-dir", str(build), "-L", "device"], "No tests were found")


def pytest(setting: Setting) -> dict[str, Any]:
    """The device tests in Python."""
    files = [str(p) for p in (ROOT / "tests" / "python").glob("test_*.py") if "mark.device" in p.read_text()]
    if not files:
        raise NotBuiltError("no test in Python carries the mark device")
    return _tests(
        setting, [sys.executable, "-m", "pytest", "-q", "-m", "device", *sorted(files)], "deselected in"
    )


def _tests(setting: Setting, command: list[str], none: str) -> dict[str, Any]:
    lines = setting.runner.run(command, check=False).strip().splitlines() or ["it said nothing"]
    if none in " ".join(lines) and "passed" not in " ".join(lines):
        raise NotBuiltError("no test carries the label device")
    told = next((line for line in reversed(lines) if "passed" in line or "failed" in line), lines[-1])
    if "failed" in told and " 0 tests failed" not in told:
        raise FailedError(told.strip())
    return {"tests": told.strip()}


def profile(setting: Setting) -> dict[str, Any]:
    """``prism profile`` of the layers that the program has."""
    told = setting.runner.prism(
        "profile",
        "-o",
        str(setting.profile),
        "--device",
        setting.device,
        "--json",
        "--repeats",
        "5",
        "--minutes",
        str(setting.profile_minutes),
        "--shape",
        setting.shape,
    )
    covered = [point for point in told["points"] if point["covered"] and point["p10_ns"]]
    scatter = [point["p90_ns"] / point["p10_ns"] - 1 for point in covered]
    return {
        "device": told["device"],
        "rows": len(told["kernels"]),
        "points": len(told["points"]),
        "dropped": len(told["dropped"]),
        "scatter_median": statistics.median(scatter) if scatter else None,
        "scatter_most": max(scatter, default=None),
        "host_ns": {row["figure"]: row["value_ns"] for row in told["host"]},
        "families": {row["family"]: row["share"] for row in told["families"]},
        "warnings": told["warnings"],
    }


def real(setting: Setting) -> dict[str, Any]:
    """The program on the device: peaks and times, and once more for its kernels."""
    return {**_measured(setting, "times"), "kernels": _measured(setting, "kernels")["kernels"]}


def _measured(setting: Setting, what: str) -> dict[str, Any]:
    out = setting.work / f"{what}.json"
    command = [str(HERE / "measured.py"), str(out), *(["--kernels"] if what == "kernels" else [])]
    command += ["--", *setting.program]
    if not setting.dry:
        setting.runner.run([sys.executable, *command])
    else:
        graph = setting.work / f"{what}.prism"
        setting.runner.prism(
            "collect",
            "--world-size",
            "1",
            "--device",
            setting.device,
            "--iterations",
            "1000",
            "--json",
            "-o",
            str(graph),
            "--",
            *command,
        )
    told: dict[str, Any] = json.loads(out.read_text())
    if setting.dry and what == "kernels":  # the profiler sees no kernel of a virtual device: its record does
        told["kernels"] = _launches(graph)
    told["iteration_ns"] = told["iteration_ns"][1:]  # the second of the program allocates yet
    return told


def virtual(setting: Setting) -> dict[str, Any]:
    """The same program, unchanged, on the virtual GPU with the measured profile."""
    setting.runner.prism(
        "collect",
        "--world-size",
        "1",
        *setting.virtual(),
        "--iterations",
        "1000",
        "--json",
        "-o",
        str(setting.graph),
        "--",
        *setting.program,
    )
    from prismcore import replay
    from prismcore.cli.graphs import open_graph
    from prismcore.profiles.device import load_device
    from prismcore.report.table_use import table_use

    graph, device = open_graph(setting.graph), load_device(setting.profile)
    use = table_use(graph, device)
    peaks = graph.rank(0).peaks
    return {
        "peak_allocated_bytes": peaks.allocated_bytes,
        "peak_reserved_bytes": peaks.reserved_bytes,
        "iteration_ns": replay(graph, device=device).iteration_time_ns[2:].tolist(),
        "kernels_of_table": use.found,
        "kernels_different": use.kernels,
        "provenance": _provenance(setting),
        "kernels": _launches(setting.graph),
    }


def _provenance(setting: Setting) -> dict[str, float]:
    told = setting.runner.prism("replay", str(setting.graph), "--profile", str(setting.profile), "--json")
    found: dict[str, float] = told["provenance"]
    return found


def _launches(path: Path) -> dict[str, int]:
    """Of a graph of one rank, by name."""
    from prismcore.cli.graphs import open_graph
    from prismcore.graph import OpKind

    graph = open_graph(path)
    ops = graph.ops(0)
    numbers = Counter(ops["ref"][ops["kind"] == OpKind.KERNEL].tolist())
    counts: Counter[str] = Counter()
    for number, count in numbers.items():
        counts[graph.kernel(number).name] += count
    return dict(counts)


def same_peak(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """Peak of allocated bytes, virtual and real."""
    a, b = ours["peak_allocated_bytes"], theirs["peak_allocated_bytes"]
    figures = {"virtual": a, "real": b, "difference": a - b, "equal": a == b}
    if a != b:
        reserved = [told["peak_reserved_bytes"] for told in (ours, theirs)]
        figures["explained"] = (
            "no: see the kernels that one side alone has, whose work buffers the other lacks; reserved "
            f"{reserved[0]:,} and {reserved[1]:,}"
        )
    return figures


def same_kernels(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """Names and counts of kernels, virtual and real."""
    if not theirs["kernels"]:
        raise FailedError("torch's profiler told no kernel of the device (CUPTI may be refused to this user)")
    return compare(ours["kernels"], theirs["kernels"])


def same_time(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """Iteration time: replayed by the measured table, and of the device."""
    if not theirs["iteration_ns"] or not ours["iteration_ns"]:
        raise FailedError("the program ended before its third iteration")
    replayed, measured = (statistics.median(side["iteration_ns"]) for side in (ours, theirs))
    return {
        "virtual_ns": round(replayed),
        "real_ns": round(measured),
        "ratio": replayed / measured,
        "kernels_of_table": f"{ours['kernels_of_table']} of {ours['kernels_different']}",
        "provenance": ours["provenance"],
    }


def collected(setting: Setting, world: int) -> dict[str, Any]:
    """A job of so many ranks of the same program, mapped on the virtual GPU."""
    told = setting.runner.prism(
        "collect",
        "--world-size",
        str(world),
        *setting.virtual(),
        "--iterations",
        "2",
        "--json",
        "-o",
        str(setting.work / f"world{world}.prism"),
        "--",
        *setting.program,
    )
    return {key: told[key] for key in ("ranks_run", "classes", "ops", "wall_time_s")}


def emulated(setting: Setting, world: int, sandbox: int, *flags: str) -> dict[str, Any]:
    """That job with so many ranks that run, all on one device."""
    graph = setting.work / f"world{world}.prism"
    if not graph.is_file():
        raise FailedError(f"there is no job of {world:,} ranks: its row failed")
    if not setting.dry and "--device" not in setting.runner.run(
        [sys.executable, "-m", "prismcore", "emulate", "--help"]
    ):
        raise NotBuiltError("prism emulate runs sandbox ranks on the virtual GPU alone (no --device)")
    ranks = ",".join(str(rank) for rank in range(sandbox))
    device = [] if setting.dry else ["--device", "cuda"]
    told = setting.runner.prism(
        "emulate", str(graph), "--sandbox", ranks, "--json", *device, *flags, "--", *setting.program
    )
    own, replayed = told["median_iteration_time_ns"], told["replay_median_iteration_time_ns"]
    return {
        "iteration_ns": own,
        "replay_ns": replayed,
        "ratio": own / replayed,
        "ghosts": told["ghosts"],
        "materialised_ghosts": told["materialised_ghosts"],
        "posts": told["posts"],
        "bootstrap_s": told["bootstrap_s"],
        "wall_time_s": told["wall_time_s"],
    } | ({"release_error_ns": told["release_error_ns"], "overdue": told["overdue_answers"]} if flags else {})


def swaps(setting: Setting) -> dict[str, Any]:
    """More ranks than slots: what it costs to move one out of the device's memory and back."""
    told = setting.runner.run([sys.executable, "-m", "prismcore", "collect", "--help"])
    if "--data" not in told:
        raise NotBuiltError("prism collect has no ranks that take turns (no --data real)")
    if not setting.dry and "cuda" not in told:
        raise NotBuiltError("prism collect runs ranks on the virtual GPU alone (no --device cuda)")
    device = ["--device", setting.device]
    found = setting.runner.prism(
        "collect",
        "--world-size",
        "4",
        "--ranks",
        "all",
        "--slots",
        "2",
        "--data",
        "real",
        *device,
        "--iterations",
        "2",
        "--json",
        "-o",
        str(setting.work / "turns.prism"),
        "--",
        *setting.program,
    )["swaps"]
    gib = found["bytes"] / 2**30
    return {**found, "seconds_per_gib": found["seconds"] / gib if gib else None}


def entry(setting: Setting, part: str) -> dict[str, Any]:
    """A part that measures itself (``ENTRIES``)."""
    module, _, name = ENTRIES[part].partition(":")
    try:
        measure: Callable[[float], dict[str, Any]] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        raise NotBuiltError(f"no {ENTRIES[part]}") from None
    if setting.dry:
        raise NotBuiltError("needs a real GPU")
    del measure  # in a process of its own: a device that fails takes nothing with it
    code = f"import json, {module} as part; print(json.dumps(part.{name}({setting.runner.left_s - 5:.1f})))"
    found: dict[str, Any] = json.loads(setting.runner.run([sys.executable, "-c", code]).splitlines()[-1])
    return found


def megatron() -> bool:
    return importlib.util.find_spec("megatron") is not None and os.environ.get("PRISM_GPU_OWN_GPT") != "1"
