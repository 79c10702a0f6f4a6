"""The scheduler of an emulation with thousands of ghosts, without torch and without a program.

Sandbox ranks are processes that post what the graph recorded of them, through the same mailboxes as real
ones; everyone else is a ghost. The job is that of replay_event.py (Megatron's shape, tensor 8, pipeline 8).

scheduler: ghost events per second of the engine's processor time, virtual clock, by ranks.
release:   wall clock, 8,192 ranks of which 1 and 2 run: how late answers are given that were known before
           their time; beside it, in the same run, a process that does nothing but pace as many times (sleep
           until shortly before, then spin). 30 iterations; device times are tripled for two cores to keep up.
memory:    what the engine holds for each rank, from the difference between two sizes, in an emulation and
           in a plain replay, results and the graph's own tables included.

    python benchmarks/ghosts.py [--json] [--ranks LIST] [--parts scheduler,release,memory] [--slower N]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve()
SANDBOX = {1: [0], 2: [0, 8]}


def _child(arguments: list[object], fds: list[int] | None = None) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(HERE), "--child", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=fds or [])


def _told(child: subprocess.Popen[bytes]) -> dict[str, object]:
    out, _ = child.communicate()
    if child.returncode != 0:
        sys.exit(f"a process of the benchmark ended with exit code {child.returncode}")
    found: dict[str, object] = json.loads(out)
    return found


def build(path: Path, ranks: int, iterations: int, slower: int) -> None:
    child = _child(["build", path, ranks, iterations, slower])
    _told(child)


def emulation(path: Path, sandbox: list[int], clock: str) -> dict[str, object]:
    """One emulation in a process of its own."""
    return _told(_child(["emulate", path, ",".join(map(str, sandbox)), clock]))


# What the child processes do.


def _build(path: str, ranks: str, iterations: str, slower: str) -> dict[str, object]:
    from replay_inputs import training_job

    graph = training_job(int(ranks), iterations=int(iterations), slower=int(slower))
    graph.save(Path(path))
    return {}


def _post(path: str, rank: str, fd: str, number: str) -> dict[str, object]:
    from prismcore import _core
    from prismcore.graph import Graph

    _core.play_back(Graph.open(Path(path)).core, int(rank), int(fd), int(number))
    return {}


def _pace(interval_ns: str, count: str) -> dict[str, object]:
    from prismcore import _core

    p50, p99, largest = _core.pace_alone(int(interval_ns), int(count))
    return {"p50": p50, "p99": p99, "max": largest}


def _emulate(path: str, ranks: str, clock: str) -> dict[str, object]:
    from prismcore import _core
    from prismcore.graph import Graph
    from prismcore.replay import Perturbation, replay
    from prismcore.replay.replay import recorded_eager_bytes

    graph = Graph.open(Path(path))
    sandbox = [int(r) for r in ranks.split(",")]
    timed = clock == "wall"
    pace = None
    if timed:
        expected = replay(graph)
        asks = _asks(graph, sandbox)
        # As often as answers are due, over as long: the first iteration is not paced.
        paced_ns = int(expected.iteration_time_ns[1:].sum())
        count = max(1, asks * (len(expected.iteration_time_ns) - 1) // len(expected.iteration_time_ns))
        pace = _child(["pace", paced_ns // count, count])
    ports = _core.PortMemory.create(len(sandbox), timed=timed)
    posters = [_child(["post", path, rank, ports.fd, i], [ports.fd]) for i, rank in enumerate(sandbox)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin, cpu = time.perf_counter(), time.thread_time()
    raw = _core.emulate(
        graph.core,
        threads=1,
        perturbation=Perturbation().to_core(),
        cluster=None,
        device=None,
        wiring=None,
        eager_bytes=recorded_eager_bytes(graph),
        ports=ports,
        ranks=sandbox,
        follow=False,
        machines=[],
        idle=lambda rank, silent_ns: None,
    )
    cpu_s, wall_s = time.thread_time() - cpu, time.perf_counter() - begin
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    for poster in posters:
        _told(poster)
    events = raw["events"] - raw["posts"]
    found: dict[str, object] = {
        "ranks": len(graph.ranks),
        "sandbox": len(sandbox),
        "ghost_events": events,
        "posts": raw["posts"],
        "wall_s": wall_s,
        "engine_cpu_s": cpu_s,
        "ghost_events_per_s": events / cpu_s,
        "held_bytes": held * 1024,
    }
    if pace is not None:
        p50, p99, largest = raw["release_error_ns"]
        found |= {
            "release_error_ns": {"p50": p50, "p99": p99, "max": largest},
            "bare_error_ns": _told(pace),
            "paced": raw["paced_answers"],
            "overdue": raw["overdue_answers"],
            "late_ns": raw["late_ns"],
        }
    return found


def _asks(graph: object, sandbox: list[int]) -> int:
    from prismcore.graph import Graph, OpKind

    assert isinstance(graph, Graph)
    syncs = (OpKind.STREAM_SYNC, OpKind.EVENT_SYNC, OpKind.DEVICE_SYNC)
    return sum(int((graph.ops(rank)["kind"] == kind).sum()) for rank in sandbox for kind in syncs)


def _replay(path: str) -> dict[str, object]:
    from prismcore.graph import Graph
    from prismcore.replay import replay

    graph = Graph.open(Path(path))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = replay(graph)
    held = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    return {"ranks": len(graph.ranks), "held_bytes": held, "events": result.events}


# The parts.


def scheduler(folder: Path, sizes: list[int]) -> list[dict[str, object]]:
    rows = []
    for ranks in sizes:
        path = folder / f"{ranks}.prism"
        if not path.exists():
            build(path, ranks, 2, 1)
        rows.append(emulation(path, SANDBOX[2], "virtual"))
    return rows


def release(folder: Path, slower: int) -> list[dict[str, object]]:
    path = folder / "slow.prism"
    build(path, 8192, 30, slower)
    rows = []
    for sandbox in SANDBOX.values():
        row = emulation(path, sandbox, "wall")
        own, bare = row["release_error_ns"], row["bare_error_ns"]
        assert isinstance(own, dict)
        assert isinstance(bare, dict)
        row["p99_ratio"] = own["p99"] / max(1, bare["p99"])
        rows.append(row)
    return rows


def memory(folder: Path, sizes: list[int]) -> dict[str, float]:
    small, large = min(sizes), max(sizes)
    found: dict[str, list[int]] = {"replay": [], "emulate": []}
    for ranks in (small, large):
        path = folder / f"{ranks}.prism"
        if not path.exists():
            build(path, ranks, 2, 1)
        for kind, row in (
            ("replay", _told(_child(["replay", path]))),
            ("emulate", emulation(path, SANDBOX[2], "virtual")),
        ):
            held = row["held_bytes"]
            assert isinstance(held, int)
            found[kind].append(held)
    per_rank = {kind: (many - few) / (large - small) for kind, (few, many) in found.items()}
    return {
        "replay_bytes_per_rank": per_rank["replay"],
        "emulate_bytes_per_rank": per_rank["emulate"],
        "emulation_adds_bytes_per_ghost": per_rank["emulate"] - per_rank["replay"],
    }


def show(found: dict[str, object]) -> None:
    for row in found.get("scheduler", []):  # type: ignore[attr-defined]
        print(
            f"scheduler  {row['ranks']:>6} ranks  {row['ghost_events'] / 1e6:>9.1f} M ghost events  "
            f"{row['engine_cpu_s']:>7.2f} s cpu  {row['ghost_events_per_s'] / 1e6:>7.1f} M events/s"
        )
    for row in found.get("release", []):  # type: ignore[attr-defined]
        own, bare = row["release_error_ns"], row["bare_error_ns"]
        print(
            f"release    {row['sandbox']} ran of {row['ranks']}: p50 {own['p50'] / 1e3:.1f} us, p99 "
            f"{own['p99'] / 1e3:.1f} us, max {own['max'] / 1e3:.1f} us of {row['paced']} answers, "
            f"{row['overdue']} overdue; bare loop p50 {bare['p50'] / 1e3:.1f} us, p99 "
            f"{bare['p99'] / 1e3:.1f} us, max {bare['max'] / 1e3:.1f} us; p99 ratio {row['p99_ratio']:.2f}"
        )
    for name, value in found.get("memory", {}).items():  # type: ignore[attr-defined]
        print(f"memory     {name} {value:.0f}")


CHILDREN = {"build": _build, "post": _post, "pace": _pace, "emulate": _emulate, "replay": _replay}


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(CHILDREN[sys.argv[2]](*sys.argv[3:])))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--ranks", default="64,512,4096,8192,65536", help="comma-separated multiples of 64")
    parser.add_argument("--parts", default="scheduler,release,memory")
    parser.add_argument(
        "--slower", type=int, default=3, help="of the release part: device times, in multiples"
    )
    parser.add_argument("--json", action="store_true", help="machine output")
    args = parser.parse_args()
    sizes = [int(n) for n in args.ranks.split(",")]
    found: dict[str, object] = {"benchmark": "ghosts", "load": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="prism-bench-") as name:
        folder = Path(name)
        for part in args.parts.split(","):
            if part == "scheduler":
                found[part] = scheduler(folder, sizes)
            elif part == "release":
                found[part] = release(folder, args.slower)
            elif part == "memory":
                found[part] = memory(folder, sizes)
            else:
                parser.error(f"part {part!r} found, expected scheduler, release or memory")
    if args.json:
        print(json.dumps(found, indent=2))
    else:
        show(found)


if __name__ == "__main__":
    main()
