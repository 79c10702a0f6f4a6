"""Profiles that extend others by what was measured."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prismcore.calibrate.collectives import (
    LEAST_FITTED,
    CollectiveRow,
    LinkFit,
    collective_rows,
    fit_links,
)
from prismcore.calibrate.device import base_for, check_base, other_memory
from prismcore.calibrate.figures import CopyRow, HostRow, copy_rows, host_rows, pcie_bandwidth
from prismcore.calibrate.kernels import FamilyFit, KernelRow, fit_families, kernel_rows, table_rows
from prismcore.calibrate.samples import Samples
from prismcore.calibrate.targets import check_targets, reference
from prismcore.errors import ProfileError, TraceError
from prismcore.outputs import write_whole
from prismcore.profiles.cluster import ClusterProfile, default_cluster_for, load_cluster
from prismcore.profiles.device import DeviceProfile, load_device
from prismcore.profiles.timing_table import TimingRow, table_text
from prismcore.profiles.toml_text import toml_text

__all__ = ["LEAST_SAMPLES", "Calibrated", "calibrate"]

LEAST_SAMPLES = 3
WIDE = 1.5  # p90 over p10 of rows that are told as doubtful
RESOLVED_NS = 10_000  # below, whole microseconds of older traces spread by as much


@dataclass(kw_only=True, slots=True)
class Calibrated:
    """What was found, and the profiles that follow from it.

    ``device`` is the base with new figures and ``table``; ``cluster`` None where no collective told
    anything. ``memory_bytes``: the traces' where it is another than the base's. ``facts``: figures of the
    device that were told and differ from the base's.
    """

    samples: Samples
    least: int
    base: str
    base_cluster: str | None
    device: DeviceProfile
    cluster: ClusterProfile | None
    table: list[TimingRow]
    kernels: list[KernelRow]
    families: list[FamilyFit]
    collectives: list[CollectiveRow]
    links: list[LinkFit]
    copies: list[CopyRow]
    host: list[HostRow]
    pcie: float | None
    memory_bytes: int | None
    facts: dict[str, int]
    warnings: list[str]

    def files(self, profile: Path) -> tuple[Path, Path, Path | None]:
        """Names of the device profile, its table and the cluster profile beside it, if there is one."""
        cluster = profile.with_suffix(".cluster.toml") if self.cluster is not None else None
        return profile, profile.with_suffix(".kernels.csv"), cluster

    def save(self, profile: Path) -> list[Path]:
        """Writes ``NAME.toml``, ``NAME.kernels.csv`` and, where there are collectives, ``NAME.cluster.toml``;
        returns their names. The profiles extend their bases. All are written, or none.

        Raises PrismError where one cannot be written, or would replace what a base is read from.
        """
        check_targets(profile, base=self.base, cluster=self.base_cluster)
        main, table, cluster = self.files(profile)
        texts = {table: table_text(self.table)}
        if cluster is not None:
            texts[cluster] = toml_text(self._cluster_table(cluster))
        texts[main] = toml_text(self._device_table(main, table.name))
        write_whole({path: text.encode() for path, text in texts.items()})
        return [main, table] if cluster is None else [main, table, cluster]

    def _device_table(self, path: Path, table: str) -> dict[str, Any]:
        out: dict[str, Any] = {
            "base": reference(self.base, path),
            "fitted_to": self._words(),
            "table": table,
        }
        if self.memory_bytes is not None:
            out["memory_bytes"] = self.memory_bytes
        out |= self.facts
        if self.pcie is not None:
            out["pcie_bandwidth"] = self.device.pcie_bandwidth
        shares = {fit.family: fit.share for fit in self.families if fit.share is not None}
        host = {row.figure: row.value_ns for row in self.host if row.value_ns is not None}
        return out | ({"efficiency": shares} if shares else {}) | ({"host": host} if host else {})

    def _cluster_table(self, path: Path) -> dict[str, Any]:
        out: dict[str, Any] = {"base": reference(self.base_cluster or "", path)}
        for fit in (fit for fit in self.links if fit.is_fitted):
            if fit.protocol == "messages":
                part, latency, rate = (
                    ("p2p", "intra_latency_us", "nvlink_gbps")
                    if fit.where == "one_node"
                    else ("p2p", "inter_latency_us", "nic_gbps")
                )
                messages = out.setdefault(part, {})
                messages |= {latency: fit.latency_us} if fit.latency_us is not None else {}
                messages |= {rate: fit.bandwidth} if fit.bandwidth is not None else {}
                continue
            graphs = out.setdefault(fit.where, {"fitted_to": self._words()})
            calibration = graphs.setdefault("calibration", {})
            if fit.bandwidth is not None:
                calibration.setdefault("bandwidth_efficiency", {})[fit.protocol] = fit.bandwidth
            if fit.latency_us is not None:
                calibration.setdefault("extra_latency_us", {})[fit.protocol] = fit.latency_us
        return out

    def _words(self) -> str:
        device = self.samples.device
        source = self.samples.source.encode("utf-8", "replace").decode()  # names of files need not be UTF-8
        return f"{self.samples.kind} {source}" + (f" on {device.name}" if device is not None else "")


def calibrate(
    samples: Samples,
    *,
    base: str | None = None,
    cluster: str | None = None,
    least: int = LEAST_SAMPLES,
    facts: Mapping[str, int] | None = None,
) -> Calibrated:
    """Fits a device profile and a cluster profile to samples.

    Args:
        samples: of :func:`prismcore.calibrate.from_traces.samples_of_traces` or ``from_graph``.
        base: device profile to extend, name or file; None: the shipped one of the device that the traces
            name.
        cluster: cluster profile to extend; None: the one that belongs to the base, where there is one.
        least: samples that a row of the table, and a median of collectives, needs.
        facts: figures of the device by key of a profile, which stand in place of the base's.

    Raises:
        TraceError: no kernel has enough samples, the traces are of another device than the base or of one
            without a profile, or ``cluster`` is given and no collective is of use.
        ProfileError: a base cannot be read.
    """
    warnings = list(samples.warnings)
    base = _base_of(samples, base, warnings)
    profile = load_device(base)
    rows = kernel_rows(samples.kernels, profile, least)
    if not any(row.in_table for row in rows):
        most = max((row.measured.count for row in rows), default=0)
        raise TraceError(
            f"{samples.source}: no kernel with at least {least} samples found, where the most frequent of "
            f"{len(rows):,} has {most}; expected more steps or ranks (or --least-samples)"
        )
    device = copy.deepcopy(profile)
    memory = None
    if samples.device is not None and other_memory(samples.device, profile):
        memory = device.memory_bytes = samples.device.memory_bytes
        warnings.append(
            f"{base} has {profile.memory_bytes:,} bytes of memory, the traces' {samples.device.name} "
            f"{memory:,}: the profile has the traces'; its bandwidth stays the base's "
            f"({profile.memory_bandwidth / 1e9:,g} GB/s; memory_bandwidth in the file)"
        )
    told = {key: value for key, value in (facts or {}).items() if getattr(profile, key) != value}
    for key, value in told.items():
        setattr(device, key, value)
    families = fit_families(rows, profile)
    for fit in families:
        if fit.share is not None:
            setattr(device.efficiency, fit.family, fit.share)
    pcie = pcie_bandwidth(samples.copies, profile, least)
    if pcie is not None:
        device.pcie_bandwidth = pcie
    host = host_rows(samples.host, profile)
    for row in host:
        if row.value_ns is not None:
            setattr(device.host, row.figure, row.value_ns)
    device.rows = _with_base_rows(table_rows(samples.kernels, rows, least), profile)

    named = cluster if cluster is not None else _cluster_of(base)
    fitted, links, collectives = None, list[LinkFit](), list[CollectiveRow]()
    if named is not None:
        base_cluster = load_cluster(named)
        fitted, links = fit_links(samples.collectives, base_cluster, least)
        collectives = collective_rows(samples.collectives, base_cluster, fitted, least)
    taken = any(fit.is_fitted for fit in links)
    if cluster is not None and not taken:
        raise TraceError(
            f"{samples.source}: {_collectives_words(samples, least)}, expected some for the cluster profile "
            f"({cluster}); leave out --cluster for a device profile alone"
        )
    warnings += _doubts(samples, rows, host, links)
    if not taken:
        warnings.append(
            f"no cluster profile: {_collectives_words(samples, least)}"
            if named is not None
            else f"no cluster profile: none belongs to {base}; name one to extend (--cluster)"
        )
    return Calibrated(
        samples=samples,
        least=least,
        base=base,
        base_cluster=named,
        device=device,
        cluster=fitted if taken else None,
        table=device.rows,
        kernels=rows,
        families=families,
        collectives=collectives,
        links=links,
        copies=copy_rows(samples.copies),
        host=host,
        pcie=pcie,
        memory_bytes=memory,
        facts=told,
        warnings=warnings,
    )


def _base_of(samples: Samples, base: str | None, warnings: list[str]) -> str:
    if samples.device is None:
        if base is None:
            raise TraceError(
                f"{samples.source}: the device is not told (deviceProperties), expected the profile to "
                "extend (--base)"
            )
        warnings.append(f"the traces do not tell their device: taken to be that of {base}")
    elif base is None:
        return base_for(samples.device)
    else:
        check_base(samples.device, base, load_device(base))
    return base


def _cluster_of(base: str) -> str | None:
    try:
        return default_cluster_for(base)
    except ProfileError:
        return None


def _with_base_rows(rows: list[TimingRow], profile: DeviceProfile) -> list[TimingRow]:
    """New rows, and those of the base's table that they do not replace."""
    known = {(row.name, row.shape) for row in rows}
    return rows + [row for row in profile.rows if (row.name, row.shape) not in known]


def _collectives_words(samples: Samples, least: int) -> str:
    left_out = ", ".join(f"{count:,} {why}" for why, count in samples.collectives_left_out.items())
    counts = [len(durations) for durations in samples.collectives.values()]
    few = sum(count for count in counts if count < least)
    parts = [f"{few:,} with fewer than {least} samples of a size"] if few else []
    if rest := sum(counts) - few:
        parts.append(f"{rest:,} of protocols with fewer than {LEAST_FITTED} samples")
    parts += [left_out] if left_out else []
    return f"no collectives of use found ({'; '.join(parts)})" if parts else "no collectives found"


def _doubts(samples: Samples, rows: list[KernelRow], host: list[HostRow], links: list[LinkFit]) -> list[str]:
    """What to distrust in the result."""
    out = []
    whole = max(samples.device_ns, 1)
    nameless = [row for row in rows if row.base.family == "gemm" and row.shape.m == 0]
    if nameless:
        share = sum(row.total_ns for row in nameless) / whole
        out.append(
            f"{sum(row.measured.count for row in nameless):,} products without dimensions ({share:.1%} of "
            "kernel time): their rows are found by imported graphs alone; record_shapes=True tells dimensions"
        )
    wide = [row for row in rows if row.in_table and row.measured.p90_ns > WIDE * max(row.measured.p10_ns, 1)]
    wide = [row for row in wide if row.measured.median_ns >= RESOLVED_NS]
    if wide:
        share = sum(row.total_ns for row in wide) / whole
        out.append(
            f"{len(wide):,} rows of the table spread by more than {WIDE:g} times between their tenth and "
            f"ninetieth percentile ({share:.1%} of kernel time): they stand for different work"
        )
    if samples.host_profiled and any(row.value_ns is not None for row in host):
        out.append("host figures hold what the profiler itself costs: they bound a run without it from above")
    for stalled in (row for row in host if row.why == "stalls"):
        spread = stalled.measured
        out.append(
            f"{stalled.figure} stays the base's {stalled.base_ns:,} ns: of {spread.count:,} a tenth took "
            f"{spread.p10_ns:,} ns at most, a tenth {spread.p90_ns:,} at least (stalls)"
        )
    for fit in (fit for fit in links if fit.samples < LEAST_FITTED):
        out.append(
            f"{fit.protocol} on {fit.where.replace('_', ' ')} stays the base's: {fit.samples:,} samples, "
            f"fewer than {LEAST_FITTED}"
        )
    for why, count in samples.collectives_left_out.items():
        out.append(f"{count:,} collectives left out: {why}")
    return out
