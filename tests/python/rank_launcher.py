"""A warm parent for tests, and what is left of it."""

from __future__ import annotations

from pathlib import Path

from prismcore.errors import PrismError
from prismcore.launch.failures import failure_of
from prismcore.launch.launcher import Launcher, RankEnd
from prismcore.profiles.cluster import cluster_text

WORLD = 16


def launcher(folder: Path, **options) -> Launcher:
    settings = {
        "command": ["train.py", "--flag"],
        "folder": folder,
        "world_size": WORLD,
        "gpus_per_node": 8,
        "device": "h100",
        "cluster_text": cluster_text("h100-8x"),
        "measure_host": False,
        "iterations": 3,
    }
    return Launcher(**(settings | options))


def failure(end: RankEnd) -> PrismError | None:
    return failure_of(end, world_size=WORLD, timeout_s=20)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def descendants(root: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    out: set[int] = set()
    waiting = [root]
    while waiting:
        for child in children.get(waiting.pop(), []):
            out.add(child)
            waiting.append(child)
    return out
