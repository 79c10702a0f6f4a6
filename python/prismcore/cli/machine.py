"""Checks of ``prism doctor`` on the machine itself."""

from __future__ import annotations

import os
import platform
import resource
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from prismcore.report.units import format_bytes

Status = Literal["ok", "limited", "missing"]

GIB = 1 << 30


@dataclass(kw_only=True, slots=True, frozen=True)
class Check:
    """One line of the doctor's report."""

    name: str
    status: Status
    found: str
    advice: str = ""
    """What to do; empty when there is nothing to do."""
    needed_for: tuple[str, ...] = ()
    """Abilities (replay, collect, gpu) that are gone when this is missing."""


def machine_checks() -> list[Check]:
    """Most basic first."""
    return [system(), python(), core(), cores(), memory(), shared_memory(), memfd(), open_files()]


def system() -> Check:
    found = f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver()) or 'libc unknown'}"
    if platform.system() == "Linux":
        return Check(name="system", status="ok", found=found)
    return Check(
        name="system",
        status="missing",
        found=found,
        advice="prismcore runs on Linux",
        needed_for=("collect",),
    )


def python() -> Check:
    # An older Python could not have imported this module.
    return Check(name="python", status="ok", found=platform.python_version())


def core() -> Check:
    try:
        import prismcore._core as core
    except ImportError as error:
        return Check(
            name="core",
            status="missing",
            found=f"the C++ core does not load: {error}",
            advice="reinstall prismcore (make install)",
            needed_for=("replay", "collect"),
        )
    return Check(name="core", status="ok", found=f"loaded from {Path(str(core.__file__)).name}")


def cores() -> Check:
    count = len(os.sched_getaffinity(0))
    quota = _cgroup_cores()
    found = f"{count} usable" + (f", limited to {quota:g} by the control group" if quota else "")
    return Check(name="cores", status="ok", found=found)


def _cgroup_cores() -> float | None:
    try:
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        return None


def memory() -> Check:
    page = os.sysconf("SC_PAGE_SIZE")
    total = page * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        total = min(total, int(limit)) if limit != "max" else total
    except (OSError, ValueError):
        pass
    if total >= 8 * GIB:
        return Check(name="memory", status="ok", found=format_bytes(total))
    return Check(
        name="memory",
        status="limited",
        found=format_bytes(total),
        advice="8 GiB or more to collect large jobs; fewer --slots need less",
    )


def shared_memory() -> Check:
    try:
        free = shutil.disk_usage("/dev/shm").free
    except OSError as error:
        return Check(
            name="/dev/shm",
            status="limited",
            found=f"not there: {error.strerror}",
            advice="programs whose data loaders use shared memory will fail; mount a tmpfs there",
        )
    if free >= 64 << 20:
        return Check(name="/dev/shm", status="ok", found=f"{format_bytes(free)} free")
    return Check(
        name="/dev/shm",
        status="limited",
        found=f"{format_bytes(free)} free",
        advice="remove what fills it, or start the container with a larger --shm-size",
    )


def memfd() -> Check:
    try:
        os.close(os.memfd_create("prism-doctor"))
    except (AttributeError, OSError) as error:
        return Check(
            name="memfd",
            status="missing",
            found=f"memfd_create does not work: {error}",
            advice="use a kernel of 3.17 or later, or a sandbox that allows it",
            needed_for=("collect",),
        )
    return Check(name="memfd", status="ok", found="works")


def open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= 1024:
        return Check(name="open files", status="ok", found=f"limit {soft}")
    return Check(
        name="open files",
        status="limited",
        found=f"limit {soft}",
        advice=f"ulimit -n {max(1024, min(hard, 4096))}",
    )
