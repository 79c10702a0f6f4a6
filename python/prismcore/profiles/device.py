"""Device profiles: what the virtual GPU is, and what kernels and calls cost on it.

A profile is a TOML file (``docs/profiles.md``); ``h100``, ``h200``, ``a100``, ``b200`` and
``a100-megatron-deepspeed`` ship with the package. Rates are operations or bytes a second, times integer
nanoseconds, sizes bytes.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

from prismcore import _core
from prismcore.errors import ProfileError
from prismcore.profiles.reader import (
    Range,
    known_profiles,
    problem,
    profile_files,
    read_mapping,
    read_profile,
)
from prismcore.profiles.timing_table import TimingRow, read_table

__all__ = [
    "DeviceProfile",
    "Efficiency",
    "HostCosts",
    "PeakRates",
    "device_files",
    "device_profiles",
    "load_device",
]

SAME_IN_CORE: Final = (
    "name",
    "memory_bytes",
    "context_bytes",
    "sms",
    "l2_bytes",
    "shared_per_block_optin",
    "shared_per_sm",
    "clock_khz",
    "memory_clock_khz",
    "memory_bus_bits",
    "memory_bandwidth",
    "pcie_bandwidth",
    "kernel_floor_ns",
)
FOLDER: Final = Path(__file__).parent / "devices"

# The least values catch figures in another unit (GB for bytes, TFLOP/s for operations a second).
Bytes = Annotated[int, Range(minimum=1024, maximum=1e15, unit="bytes")]
Memory = Annotated[int, Range(minimum=1 << 20, maximum=1e15, unit="bytes")]
Count = Annotated[int, Range(above=0, maximum=1e6)]
Kilohertz = Annotated[int, Range(minimum=10_000, maximum=1e8, unit="kHz")]
Share = Annotated[float, Range(above=0, maximum=1.0, unit="share of the peak")]
Bandwidth = Annotated[float, Range(minimum=1e8, maximum=1e18, unit="bytes/s")]
Rate = Annotated[float, Range(minimum=1e9, maximum=1e18, unit="operations/s")]
OptionalRate = Annotated[float, Range(maximum=1e18, unit="operations/s; 0: not supported")]
Nanoseconds = Annotated[int, Range(maximum=1e9, unit="ns")]


@dataclass(kw_only=True, slots=True)
class PeakRates:
    """Dense peak rates, operations a second (a multiply-add counts as two); 0: not supported."""

    fp32: Rate
    tf32: OptionalRate
    fp16: Rate
    bf16: Rate
    fp8: OptionalRate
    fp64: Rate
    int8: OptionalRate


@dataclass(kw_only=True, slots=True)
class Efficiency:
    """Share of the peak (of the rate that limits) that kernels of a family reach."""

    gemm: Share
    attention: Share
    attention_backward: Share
    elementwise: Share
    reduction: Share
    normalization: Share
    softmax: Share
    embedding: Share
    optimizer: Share
    copy: Share
    sort: Share
    random: Share


@dataclass(kw_only=True, slots=True)
class HostCosts:
    """Host time of a call, by kind of call, with the trainer's own work before it."""

    launch_ns: Nanoseconds
    copy_ns: Nanoseconds
    event_ns: Nanoseconds
    sync_ns: Nanoseconds
    query_ns: Nanoseconds
    communication_ns: Nanoseconds
    allocate_ns: Nanoseconds
    reserve_ns: Nanoseconds


@dataclass(kw_only=True, slots=True)
class DeviceProfile:
    """One kind of GPU.

    Raises:
        ProfileError: figures that contradict each other.
    """

    name: str
    memory_bytes: Memory  # what the runtime reports as total
    context_bytes: Annotated[int, Range(maximum=1e12, unit="bytes")]
    sms: Count
    compute_capability: tuple[Annotated[int, Range(maximum=99)], ...]  # (major, minor)
    l2_bytes: Bytes
    shared_per_block_optin: Bytes
    shared_per_sm: Bytes
    clock_khz: Kilohertz
    memory_clock_khz: Kilohertz
    memory_bus_bits: Count
    memory_bandwidth: Bandwidth
    pcie_bandwidth: Bandwidth  # one direction
    kernel_floor_ns: Nanoseconds  # the shortest a kernel takes; part of every kernel's time
    peak: PeakRates
    efficiency: Efficiency
    host: HostCosts
    compared_with: str | None = None  # measurements that kernels were compared with; None: nothing
    fitted_to: str | None = None  # measurements that its own figures and table come from; None: no such
    table: str | None = None  # CSV of measured kernels, relative to the profile
    rows: list[TimingRow] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if len(self.compute_capability) != 2:
            raise problem("compute_capability", repr(list(self.compute_capability)), "[major, minor]")
        if self.context_bytes >= self.memory_bytes:
            raise problem(
                "context_bytes", str(self.context_bytes), f"less than memory_bytes ({self.memory_bytes})"
            )
        if self.shared_per_block_optin > self.shared_per_sm:
            raise problem(
                "shared_per_block_optin",
                str(self.shared_per_block_optin),
                f"at most shared_per_sm ({self.shared_per_sm})",
            )

    def to_core(self) -> _core.DeviceProfile:
        """The same figures for the C++ core, after they passed the same checks as a file's.

        Raises:
            ProfileError: a figure was set to what it cannot be.
        """
        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}
        given |= {key: dataclasses.asdict(given[key]) for key in ("peak", "efficiency", "host")}
        given["compute_capability"] = list(self.compute_capability)
        given = {key: value for key, value in given.items() if value is not None}
        read_mapping(DeviceProfile, given, f"device profile {self.name}")
        core = _core.DeviceProfile()
        for key in SAME_IN_CORE:
            setattr(core, key, getattr(self, key))
        core.compute_major, core.compute_minor = self.compute_capability
        for rate in dataclasses.fields(self.peak):
            setattr(core, f"{rate.name}_flops", getattr(self.peak, rate.name))
        shares = [0.0] * 16
        for index, family in enumerate(_core.kernel_families()):
            shares[index] = getattr(self.efficiency, family, 0.0)
        core.efficiency = shares
        host = _core.HostCosts()
        for cost in dataclasses.fields(self.host):
            setattr(host, cost.name, getattr(self.host, cost.name))
        core.host = host
        for row in self.rows:
            core.add_row(row.name, row.shape.to_core(), row.duration_ns)
        return core


def device_profiles() -> list[str]:
    """Names of the profiles that ship with the package."""
    return known_profiles(FOLDER)


def device_files(name_or_path: str | os.PathLike[str]) -> list[Path]:
    """The files that :func:`load_device` reads: profile, those that it extends, and their tables.

    Raises:
        ProfileError: one of the profiles cannot be read.
    """
    given = name_or_path
    if isinstance(given, str):
        given = given.removeprefix("virtual:")
    return profile_files(given, FOLDER, kind="device")


def load_device(name_or_path: str | os.PathLike[str]) -> DeviceProfile:
    """Reads a device profile: ``"virtual:h100"``, ``"h100"``, or the path of a TOML file.

    Raises:
        ProfileError: no such profile (the message lists the known ones), or a figure is missing,
            unknown or out of range, or the timing table cannot be read.
    """
    given = name_or_path
    if isinstance(given, str) and given.startswith("virtual:"):
        given = given.removeprefix("virtual:")
    profile = read_profile(DeviceProfile, given, FOLDER, kind="device")
    if profile.table is not None:
        path = Path(os.fspath(given))
        folder = path.parent if path.suffix == ".toml" else FOLDER
        table = folder / profile.table
        if not table.is_file():
            raise ProfileError(
                f"{os.fspath(given)}: table: found no file {profile.table!r} beside the profile, expected one"
            )
        profile.rows = read_table(table)
    return profile
