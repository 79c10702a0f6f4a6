"""``prism profile``: measures a device and writes its profile."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prismcore.cli import output, parsing
from prismcore.cli.calibrate import SHOWN_KERNELS, profile_path
from prismcore.cli.graphs import cluster_path
from prismcore.errors import MeasureError

if TYPE_CHECKING:
    from prismcore.calibrate import Calibrated
    from prismcore.measure import LayerShape, Measured

_FACTS = (
    "sms",
    "memory_bytes",
    "l2_bytes",
    "shared_per_block_optin",
    "shared_per_sm",
    "clock_khz",
    "memory_clock_khz",
    "memory_bus_bits",
)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "profile",
        help="measure a GPU and write its device profile",
        description="Run the kernels of transformer layers, copies and calls on a GPU and write what they "
        "take as a device profile: NAME.toml and NAME.kernels.csv, and of several GPUs NAME.cluster.toml, "
        "which extend others.",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=profile_path,
        required=True,
        metavar="PROFILE.toml",
        help="the device profile to write",
    )
    parser.add_argument(
        "--device",
        default="cuda",
        metavar="cuda[:N]|virtual:NAME|FILE",
        help="the device to measure (%(default)s)",
    )
    parser.add_argument(
        "--minutes",
        type=minutes,
        default=5.0,
        metavar="M",
        help="time for all of it; what is least wanted is left out first (%(default)g)",
    )
    parser.add_argument(
        "--shape",
        type=shape,
        action="append",
        default=None,
        metavar="NAME|KEY=VALUE,...",
        help="layers to measure, most wanted first: 8b, 70b-tp8, ... or hidden=4096,heads=32,...; may be "
        "given several times; default: all that have names",
    )
    parser.add_argument(
        "--base",
        default=None,
        metavar="NAME|FILE",
        help="device profile to extend; default: that of the device",
    )
    parser.add_argument(
        "--cluster",
        default=None,
        metavar="NAME|FILE",
        help="cluster profile to extend, which a virtual device belongs to; default: the base's",
    )
    parser.add_argument(
        "--gpus",
        type=parsing.whole_number(1, 64),
        default=None,
        metavar="N",
        help="GPUs of this machine to measure collectives between; default: all, of a virtual device one",
    )
    parser.add_argument(
        "--repeats",
        type=parsing.whole_number(3, 1000),
        default=7,
        metavar="N",
        help="times that each call is measured (%(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="machine output on stdout")
    parser.set_defaults(run=run)


def minutes(text: str) -> float:
    """A time from a second to a day."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 1 / 60 <= found <= 1440:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected minutes from 0.02 to 1440")
    return found


def shape(text: str) -> LayerShape:
    """Name or figures of a layer."""
    from prismcore.measure.shapes import parse_shape

    try:
        return parse_shape(text)
    except MeasureError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(args: argparse.Namespace) -> int:
    from prismcore import interrupts
    from prismcore.calibrate import calibrate
    from prismcore.calibrate.targets import check_targets
    from prismcore.measure import PRESETS, MeasureOptions, measure

    begin = time.perf_counter()
    virtual = args.device.partition(":")[0] != "cuda"
    base = args.base or (args.device if virtual else None)
    check_targets(args.output, base=base, cluster=args.cluster)
    options = MeasureOptions(
        device=args.device,
        cluster=_cluster(args.cluster, base) if virtual and base else None,
        seconds=60 * args.minutes,
        shapes=args.shape or tuple(PRESETS.values()),
        repeats=args.repeats,
        gpus=args.gpus,
    )
    with output.terminated_as_interrupt():
        with output.stdout_kept_clean():
            measured = measure(options)
        facts = {key: value for key, value in measured.facts.items() if key in _FACTS}
        cluster = args.cluster if measured.samples.collectives else None
        calibrated = calibrate(measured.samples, base=base, cluster=cluster, facts=facts)
        check_targets(args.output, base=calibrated.base, cluster=calibrated.base_cluster)
        with interrupts.held():
            files = [str(path) for path in calibrated.save(args.output)]
    warnings = [*measured.warnings, *_missing(measured), *calibrated.warnings]
    wall = time.perf_counter() - begin
    if args.json:
        output.show_json(_json(files, measured, calibrated, wall, warnings))
    else:
        _show(files, measured, calibrated, wall, warnings)
    return 0


def _cluster(cluster: str | None, base: str) -> Path:
    from prismcore.profiles.cluster import default_cluster_for

    found = cluster_path(cluster if cluster is not None else default_cluster_for(base))
    assert found is not None  # a name was given
    return found


def _missing(measured: Measured) -> list[str]:
    late = [entry["point"] for entry in measured.dropped if entry["why"] == "no time left"]
    out = []
    if late:
        out.append(
            f"no time was left for {len(late):,} of the measurements, from {late[0]!r} on; give more "
            "(--minutes)"
        )
    for entry in measured.dropped:
        if entry["why"] != "no time left":
            out.append(f"{entry['point']} was not measured: {entry['why']}")
    return out


def _json(
    files: list[str], measured: Measured, calibrated: Calibrated, wall: float, warnings: list[str]
) -> dict[str, Any]:
    from prismcore.report.calibrate import calibration_json

    return {
        "files": files,
        **calibration_json(calibrated),
        "facts": measured.facts,
        "torch": measured.torch,
        "points": [
            {
                "shape": timing.shape,
                "point": timing.point,
                "call": timing.call,
                "family": timing.family,
                "count": timing.measured.count,
                "median_ns": timing.measured.median_ns,
                "p10_ns": timing.measured.p10_ns,
                "p90_ns": timing.measured.p90_ns,
                "covered": timing.covered,
                "kernel_ns": timing.kernel_ns,
            }
            for timing in measured.timings
        ],
        "dropped": measured.dropped,
        "wall_time_s": wall,
        "warnings": warnings,
    }


def _show(
    files: list[str], measured: Measured, calibrated: Calibrated, wall: float, warnings: list[str]
) -> None:
    import shlex

    from prismcore.report import calibrate as report
    from prismcore.report.table import fields_table
    from prismcore.report.units import format_wall

    fields = [
        *report.fields(calibrated),
        ("calls timed by events", f"{len(measured.timings):,}{_scatter(measured)}"),
        ("not measured", f"{len(measured.dropped):,}"),
        ("written", ", ".join(files)),
        ("measured in", format_wall(wall)),
    ]
    output.show(fields_table(files[0], fields))
    for table in report.tables(calibrated, SHOWN_KERNELS):
        output.show("", table)
    output.show_warnings(warnings)
    cluster = f" --cluster {shlex.quote(files[2])}" if len(files) > 2 else ""
    output.show("", f"next: prism replay JOB.prism --profile {shlex.quote(files[0])}{cluster}")


def _scatter(measured: Measured) -> str:
    found = sorted(timing.scatter for timing in measured.timings if timing.covered)
    if not found:
        return ""
    words = f", scatter (90 % over 10 %) {found[len(found) // 2]:.1%} in the median, {found[-1]:.0%} at most"
    pairs = [t for t in measured.timings if t.kernel_ns and t.covered]
    if pairs:
        worst = max(abs(t.measured.median_ns / t.kernel_ns - 1) for t in pairs if t.kernel_ns)
        words += f"; products by events and by kernel differ by {worst:.1%} at most"
    return words
