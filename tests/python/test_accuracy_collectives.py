"""Modelled collectives against public measurements; the bounds are stated in docs/accuracy.md."""

import pytest
from measurements import DATA, accuracy_benchmark, measured


@pytest.fixture(scope="module")
def accuracy():
    with accuracy_benchmark("collectives") as module:
        yield module


@pytest.fixture(scope="module")
def rows(accuracy):
    for folder in ("vtrain/allreduce_a100", "megatron_tp8", "aicb"):
        measured(folder)
    return {(row.data_set, row.what): row for row in accuracy.rows(DATA)}


@pytest.mark.parametrize(
    ("data_set", "start", "points", "bounds"),
    [
        ("A100 all-reduce", "calibrated on: 2, 4, 8 GPUs, 32 to 1,024 MiB", 2979, (2, 10)),
        ("A100 all-reduce", "check: 3, 5, 6, 7 GPUs, 32 to 1,024 MiB", 3972, (2, 10)),
        ("A100 all-reduce", "check: 3, 5, 6, 7 GPUs, 8 to 31 MiB", 96, (4, 13)),
        ("A100 all-reduce", "check: 3, 5, 6, 7 GPUs, 1 to 7 MiB", 28, (10, 52)),
        ("A100 Megatron TP 8", "check: all-reduce of 64 MiB", 81, (5, 17)),
        ("A100 MoE run", "check", 6, (10, 25)),
    ],
)
def test_collectives_on_a100_are_within_the_stated_bounds(rows, data_set, start, points, bounds):
    (found,) = (row for (of, what), row in rows.items() if of == data_set and what.startswith(start))
    assert found.points == points
    assert found.mean <= bounds[0]
    assert found.median <= bounds[0]
    assert found.worst <= bounds[1]


def test_calibration_is_better_than_nccls_own_model(accuracy):
    measured("vtrain/allreduce_a100")
    samples = [s for gpus in (3, 5, 6, 7) for s in accuracy.vtrain(DATA, gpus)[::50]]
    errors = [
        sum(abs(modelled / true - 1) for modelled, true in accuracy.pairs(samples, profile))
        for profile in (accuracy.load_cluster("a100-8x").to_core(), accuracy.uncalibrated())
    ]
    assert errors[0] < errors[1] / 3


def test_the_profile_holds_what_the_fit_gives(accuracy):
    pytest.importorskip("scipy")
    measured("vtrain/allreduce_a100")
    fitted = accuracy.fit(DATA)
    calibration = accuracy.load_cluster("a100-8x").one_node.calibration
    assert calibration.bandwidth_efficiency.simple == pytest.approx(fitted["simple"][0], abs=0.002)
    assert calibration.extra_latency_us.simple == pytest.approx(fitted["simple"][1], abs=0.2)
    assert calibration.ring_fill_steps == pytest.approx(fitted["simple"][2], abs=0.005)
    assert calibration.bandwidth_efficiency.ll128 == pytest.approx(fitted["ll128"][0], abs=0.002)
    assert calibration.extra_latency_us.ll128 == pytest.approx(fitted["ll128"][1], abs=0.2)


def test_the_hosts_share_is_that_of_the_measurements(accuracy):
    """Elapsed times that are the model's plus 70 us give 70 us, whatever one outlier says."""
    profile = accuracy.load_cluster("a100-8x").to_core()
    samples = [
        accuracy.Sample(kind="all_reduce", nbytes=1 << k, ranks=4, dtype="float16", measured_us=1.0)
        for k in range(10, 26)
    ]
    shifted = [
        accuracy.Sample(
            kind=s.kind,
            nbytes=s.nbytes,
            ranks=s.ranks,
            dtype=s.dtype,
            measured_us=accuracy.modelled_us(s, profile) + (700 if i == 3 else 70),
        )
        for i, s in enumerate(samples)
    ]
    assert accuracy.host_share_us(shifted, profile) == pytest.approx(70)


def test_without_data_the_benchmark_says_what_to_do(accuracy, tmp_path, capsys):
    assert accuracy.main(["--fit", "--data", str(tmp_path / "none")]) == 1
    assert "PRISM_DATA" in capsys.readouterr().err
    with pytest.raises(accuracy.AbsentError, match="vtrain"):
        accuracy.rows(tmp_path)
