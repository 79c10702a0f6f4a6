"""What a calibration found: tables, and the keys of ``prism calibrate --json``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from prismcore.rank_list import format_ranks
from prismcore.report.table import rows_table
from prismcore.report.units import format_share
from prismcore.report.words import kernel_label

if TYPE_CHECKING:
    from rich.table import Table

    from prismcore.calibrate import Calibrated
    from prismcore.calibrate.collectives import CollectiveRow, LinkFit
    from prismcore.calibrate.kernels import FamilyFit, KernelRow
    from prismcore.calibrate.samples import Spread

__all__ = ["calibration_json", "fields", "tables"]


def calibration_json(calibrated: Calibrated) -> dict[str, Any]:
    """Without names of files, wall time and warnings."""
    device = calibrated.samples.device
    return {
        "base": calibrated.base,
        "base_cluster": calibrated.base_cluster,
        "device": None if device is None else device.name,
        "ranks": calibrated.samples.ranks,
        "matched": _matched(calibrated),
        "kernels": [_kernel(row) for row in calibrated.kernels],
        "families": [
            {
                "family": fit.family,
                "kernels": fit.kernels,
                "telling": fit.telling,
                "launches": fit.launches,
                "measured_ns": fit.measured_ns,
                "base_ns": fit.base_ns,
                "fitted_ns": fit.fitted_ns,
                "base": fit.base_share,
                "share": fit.share,
                "rejected": fit.rejected,
            }
            for fit in calibrated.families
        ],
        "collectives": [_collective(row) for row in calibrated.collectives],
        "links": [
            {
                "where": fit.where,
                "protocol": fit.protocol,
                "count": fit.samples,
                "sizes": fit.sizes,
                "latency_us": fit.latency_us,
                "base_latency_us": fit.base_latency_us,
                "bandwidth": fit.bandwidth,
                "base_bandwidth": fit.base_bandwidth,
            }
            for fit in calibrated.links
        ],
        "copies": [
            {
                "direction": row.direction.name.lower(),
                "pageable": row.pageable,
                "count": row.count,
                "bytes": row.bytes,
                "large": row.large,
                "gbps": row.gbps,
            }
            for row in calibrated.copies
        ],
        "host": [
            {"figure": row.figure, **_spread(row.measured), "base_ns": row.base_ns, "value_ns": row.value_ns}
            for row in calibrated.host
        ],
    }


def fields(calibrated: Calibrated) -> list[tuple[str, str]]:
    """The first lines of the report."""
    device = calibrated.samples.device
    shares = _matched(calibrated)
    few = f"with fewer than {calibrated.least} samples"
    words = {
        "table": "in the table",
        "model": f"{few}, modelled",
        "unknown": f"{few}, which the base does not know",
    }
    cluster = "" if calibrated.base_cluster is None else f", cluster {calibrated.base_cluster}"
    return [
        ("measured", calibrated.samples.source),
        ("device", "not told" if device is None else device.name),
        ("base", f"{calibrated.base}{cluster}"),
        ("rows of the table", f"{len(calibrated.table):,}"),
        (
            "kernel time",
            ", ".join(f"{format_share(shares[key])} {word}" for key, word in words.items() if shares[key]),
        ),
    ]


def tables(calibrated: Calibrated, most_kernels: int) -> Iterator[Table]:
    """Kernels by time, families, collectives, figures."""
    shown = calibrated.kernels[:most_kernels]
    more = len(calibrated.kernels) - len(shown)
    yield rows_table(
        "kernels by time" + (f" (the first of {len(calibrated.kernels):,})" if more else ""),
        ("kernel", "count", "median, us", "10 %", "90 %", "base"),
        [
            (
                _label(row),
                row.measured.count,
                *(_us(ns) for ns in _quantiles(row.measured)),
                "unknown" if row.base.provenance == "unknown" else _us(row.base.duration_ns),
            )
            for row in shown
        ],
    )
    if calibrated.families:
        yield rows_table(
            "families: share of the peak",
            ("family", "launches", "base", "fitted", "base error", "fitted error"),
            [
                (
                    fit.family,
                    fit.launches,
                    f"{fit.base_share:g}",
                    _share(fit),
                    _error(fit.base_ns, fit.measured_ns),
                    _error(fit.fitted_ns, fit.measured_ns),
                )
                for fit in calibrated.families
            ],
        )
    if calibrated.collectives:
        yield rows_table(
            "collectives, without waiting",
            (
                "kind",
                "bytes",
                "ranks",
                "nodes",
                "groups",
                "count",
                "median, us",
                "base",
                "fitted",
            ),
            [
                (
                    rows[0].key.kind.name.lower(),
                    rows[0].key.bytes,
                    len(rows[0].key.members),
                    rows[0].nodes,
                    len(rows),
                    sum(row.measured.count for row in rows),
                    _us(_median(calibrated, rows)),
                    _us(rows[0].base.duration_ns),
                    _us(rows[0].fitted_ns),
                )
                for rows in _alike(calibrated.collectives)
            ],
        )
    if calibrated.links:
        yield rows_table(
            "links",
            ("where", "protocol", "count", "sizes", "latency, us", "base", "bandwidth", "base"),
            [
                (
                    fit.where.replace("_", " "),
                    fit.protocol,
                    fit.samples,
                    fit.sizes,
                    _figure(fit.latency_us, fit),
                    f"{fit.base_latency_us:g}",
                    _figure(fit.bandwidth, fit),
                    _bandwidth(fit),
                )
                for fit in calibrated.links
            ],
        )
    if calibrated.host:
        yield rows_table(
            "host time of calls",
            ("call", "count", "median, us", "10 %", "90 %", "base, us", "fitted, us"),
            [
                (
                    row.figure.removesuffix("_ns"),
                    row.measured.count,
                    *(_us(ns) for ns in _quantiles(row.measured)),
                    _us(row.base_ns),
                    f"as base: {row.why}" if row.value_ns is None else _us(row.value_ns),
                )
                for row in calibrated.host
            ],
        )


def _matched(calibrated: Calibrated) -> dict[str, float]:
    """Shares of the time of measured kernels: with a row in the table; with too few samples for one, which
    the base models or does not know."""
    whole = sum(row.total_ns for row in calibrated.kernels) or 1
    few = [row for row in calibrated.kernels if not row.in_table]
    of = {
        "table": sum(row.total_ns for row in calibrated.kernels if row.in_table),
        "model": sum(row.total_ns for row in few if row.base.provenance != "unknown"),
        "unknown": sum(row.total_ns for row in few if row.base.provenance == "unknown"),
    }
    return {key: value / whole for key, value in of.items()}


def _kernel(row: KernelRow) -> dict[str, Any]:
    shape = row.shape
    return {
        "name": row.name,
        "grid": list(shape.grid),
        "block": list(shape.block),
        "product": [shape.m, shape.n, shape.k, shape.batch] if shape.m else None,
        "dtype": shape.dtype if shape.m else None,
        "family": row.base.family,
        **_spread(row.measured),
        "base_ns": row.base.duration_ns,
        "base_provenance": row.base.provenance,
        "in_table": row.in_table,
    }


def _collective(row: CollectiveRow) -> dict[str, Any]:
    return {
        "kind": row.key.kind.name.lower(),
        "bytes": row.key.bytes,
        "ranks": len(row.key.members),
        "members": format_ranks(row.key.members),
        "nodes": row.nodes,
        **_spread(row.measured),
        "gbps": row.gbps,
        "base_ns": row.base.duration_ns,
        "fitted_ns": row.fitted_ns,
        "used": row.used,
    }


def _spread(measured: Spread) -> dict[str, int]:
    return {
        "count": measured.count,
        "median_ns": measured.median_ns,
        "p10_ns": measured.p10_ns,
        "p90_ns": measured.p90_ns,
    }


def _quantiles(measured: Spread) -> tuple[int, int, int]:
    return measured.median_ns, measured.p10_ns, measured.p90_ns


def _label(row: KernelRow) -> str:
    shape = row.shape
    if shape.m:
        sizes = (*([shape.batch] if shape.batch > 1 else []), shape.m, shape.n, shape.k)
        return f"{row.name} {_SHORT.get(shape.dtype, shape.dtype)} {'x'.join(map(str, sizes))}"
    label = kernel_label(row.name)
    grid = f" [{'x'.join(str(n) for n in shape.grid if n > 1) or '1'}]"
    room = LABEL - len(grid)
    return f"{label if len(label) <= room else label[: room - 3] + '...'}{grid}"


LABEL = 32  # of a table in 80 columns
_SHORT = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}


def _alike(collectives: Sequence[CollectiveRow]) -> list[list[CollectiveRow]]:
    """Rows of groups that the profiles cannot tell apart, together."""
    alike: dict[tuple[object, ...], list[CollectiveRow]] = {}
    for row in collectives:
        key = row.key
        modelled = row.base.duration_ns, row.fitted_ns
        alike.setdefault((key.kind, key.bytes, len(key.members), row.nodes, *modelled), []).append(row)
    return list(alike.values())


def _median(calibrated: Calibrated, rows: Sequence[CollectiveRow]) -> int:
    durations = np.concatenate([calibrated.samples.collectives[row.key] for row in rows])
    return round(float(np.median(durations)))


def _share(fit: FamilyFit) -> str:
    if fit.share is not None:
        return f"{fit.share:g}"
    return "as base" if fit.rejected is None else f"as base: {fit.rejected:g} is worse"


def _us(ns: int) -> str:
    return f"{ns / 1e3:,.1f}"


def _error(modelled_ns: int, measured_ns: int) -> str:
    return f"{modelled_ns / measured_ns - 1:+.1%}" if measured_ns else "-"


def _figure(value: float | None, fit: LinkFit) -> str:
    if value is not None:
        return f"{value:g}"
    return "as base" if fit.is_fitted else "too few"


def _bandwidth(fit: LinkFit) -> str:
    return f"{fit.base_bandwidth:g}" + (" GB/s" if fit.protocol == "messages" else "")
