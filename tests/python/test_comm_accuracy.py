"""Modelled collectives against public measurements; the bounds are stated in docs/accuracy.md."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("PRISM_DATA") or ROOT.parent / "shared" / "data")

spec = importlib.util.spec_from_file_location("comm_accuracy", ROOT / "benchmarks" / "comm_accuracy.py")
assert spec is not None
assert spec.loader is not None
accuracy = importlib.util.module_from_spec(spec)
sys.modules["comm_accuracy"] = accuracy
spec.loader.exec_module(accuracy)


def needs(folder: str) -> None:
    if not (DATA / folder).is_dir():
        pytest.skip(f"no measurements: {DATA / folder} is absent (PRISM_DATA names the folder)")


@pytest.fixture(scope="module")
def rows():
    for folder in ("vtrain/allreduce_a100", "megatron_tp8", "aicb"):
        needs(folder)
    return {(row.set, row.model): row for row in accuracy.rows(DATA)}


def row_of(rows, start: str, model: str = "a100-8x"):
    found = [row for (name, of), row in rows.items() if name.startswith(start) and of == model]
    assert len(found) == 1, start
    return found[0]


@pytest.mark.parametrize(
    ("start", "samples", "bounds"),
    [
        ("vTrain all-reduce, 3, 5, 6, 7 GPUs, 32 to 1024 MiB (check)", 3972, (0.01, 0.02, 0.10)),
        ("vTrain all-reduce, 2, 4, 8 GPUs, 32 to 1024 MiB (fit)", 2979, (0.015, 0.02, 0.10)),
        ("vTrain all-reduce, 3, 5, 6, 7 GPUs, 8 to 31 MiB (check)", 96, (0.02, 0.04, 0.13)),
        ("Megatron TP 8 all-reduce, 64 MiB (check)", 81, (0.03, 0.05, 0.17)),
        ("AICB all-gather, reduce-scatter, 17 and 33 GiB, 4 GPUs (check)", 2, (0.04, 0.04, 0.05)),
    ],
)
def test_large_collectives_on_a100_are_within_the_stated_bounds(rows, start, samples, bounds):
    row = row_of(rows, start)
    assert row.samples == samples
    assert abs(row.mean) <= bounds[0]
    assert row.mean_abs <= bounds[1]
    assert row.worst <= bounds[2]


def test_calibration_is_better_than_nccls_own_model_on_every_set(rows):
    for name, model in list(rows):
        if model == "a100-8x" and "AICB, 8 and 16 MiB" not in name:
            assert row_of(rows, name).mean_abs < row_of(rows, name, "NCCL's own").mean_abs, name


def test_the_profile_holds_what_the_fit_gives():
    pytest.importorskip("scipy")
    needs("vtrain/allreduce_a100")
    fitted = accuracy.fit(DATA)
    calibration = accuracy.load_cluster("a100-8x").one_node.calibration
    assert calibration.bandwidth_efficiency.simple == pytest.approx(fitted["simple"][0], abs=0.002)
    assert calibration.extra_latency_us.simple == pytest.approx(fitted["simple"][1], abs=0.2)
    assert calibration.ring_fill_steps == pytest.approx(fitted["simple"][2], abs=0.005)
    assert calibration.bandwidth_efficiency.ll128 == pytest.approx(fitted["ll128"][0], abs=0.002)
    assert calibration.extra_latency_us.ll128 == pytest.approx(fitted["ll128"][1], abs=0.2)


def test_without_data_the_benchmark_says_what_to_do(tmp_path, capsys):
    assert accuracy.main(["--data", str(tmp_path / "none")]) == 1
    assert "PRISM_DATA" in capsys.readouterr().err
