"""Zero-GPU predictions of measured A100 jobs: sample, mapping and calibration (docs/accuracy.md)."""

import dataclasses
from collections import Counter

import pytest
from measurements import DATA, accuracy_benchmark, measured

from prismcore.graph import GraphBuilder
from prismcore.profiles.cluster import load_cluster
from prismcore.profiles.device import load_device


@pytest.fixture(scope="module")
def zero():
    with accuracy_benchmark("zero_gpu") as module:
        yield module


def a_job(zero, **changes):
    sizes = {
        "gpus": 8,
        "global_batch": 32,
        "micro_batch": 2,
        "hidden": 1024,
        "heads": 16,
        "layers": 12,
        "sequence": 1024,
        "tp": 2,
        "dp": 2,
        "pp": 2,
        "measured_ms": 100.0,
    }
    return zero.Job(**{**sizes, **changes})


def test_rows_of_the_table_are_jobs(zero, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text(
        "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,"
        "tensor parallelism,data parallelism,pipeline parallelism,iteration time (ms)\n"
        "8,32,2,1024,16,12,1024,2,2,2,410.490577\n"
    )
    (job,) = zero.read_jobs(table)
    assert job == a_job(zero, measured_ms=410.490577)
    assert job.micro_batches == 8
    command = job.command()
    assert command[command.index("--micro-batches") + 1] == "8"
    assert command[command.index("--recompute") + 1] == "full"


def test_the_sample_is_fixed_and_spread(zero):
    jobs = [
        a_job(zero, tp=tp, dp=dp, gpus=2 * tp * dp, layers=layers, hidden=hidden)
        for tp in (1, 2)
        for dp in (1, 2)
        for layers in range(12, 30)
        for hidden in (1024, 2048)
    ]
    chosen = zero.sample(jobs, 24)
    assert len(set(chosen)) == 24
    assert chosen == zero.sample(jobs[::-1], 24)  # whatever the order of the file
    assert set(Counter((j.tp, j.dp, j.hidden) for j in chosen).values()) == {3}
    on, others = zero.split(chosen)
    assert not set(on) & set(others)
    assert len(on) == len(others) == 12
    assert zero.sample(jobs[:5], 24) == sorted(jobs[:5], key=lambda j: (j.hidden, j.layers))


def test_graphs_are_kept_by_sizes_and_example(zero, tmp_path, monkeypatch):
    first = zero.path_of(a_job(zero), tmp_path)
    assert zero.path_of(a_job(zero, measured_ms=1.0), tmp_path) == first
    assert zero.path_of(a_job(zero, layers=24), tmp_path) != first
    other = tmp_path / "example.py"
    other.write_text("pass")
    monkeypatch.setattr(zero, "EXAMPLE", other)
    assert zero.path_of(a_job(zero), tmp_path) != first


def test_a_small_job_is_collected_once(zero, tmp_path, monkeypatch):
    job = a_job(
        zero, gpus=2, dp=1, pp=1, global_batch=2, micro_batch=1, hidden=64, heads=4, layers=2, sequence=64
    )
    graph = zero.graph_of(job, tmp_path)
    monkeypatch.setattr("prismcore.collect.collect", None)
    assert zero.graph_of(job, tmp_path).digest() == graph.digest()
    cluster = load_cluster("a100-8x")
    kept = zero.prismcore.replay(graph)
    same = zero.predict(graph, load_device("a100"), cluster)
    assert same.iteration_time_ns.tolist() == kept.iteration_time_ns.tolist()  # of what it was collected on
    assert kept.provenance["model"] == 1.0  # every kernel is known
    slower = load_device("a100")
    slower.host.launch_ns *= 2
    # Small kernels: the host is all that counts, and most of it is launches.
    ratio = zero.predict(graph, slower, cluster).median_iteration_time_ns / kept.median_iteration_time_ns
    assert 1.7 < ratio < 2


def test_calibration_finds_the_figures_behind_measured_times(zero):
    """Jobs whose times are those of a device with other figures give these figures back."""
    pytest.importorskip("scipy")
    cluster = load_cluster("a100-8x")
    shapes = [(launches, calls, width) for launches in (5, 40) for calls in (1, 12) for width in (10, 4000)]
    graphs = [a_graph(*shape) for shape in shapes]
    values = [figure.start for figure in zero.FIGURES]
    values[:3] = [15e3, 90e3, 0.6]
    device = zero.calibrated(values)
    jobs = [
        a_job(
            zero,
            measured_ms=zero.predict(graph, device, cluster).median_iteration_time_ns / 1e6,
            layers=at + 1,
        )
        for at, graph in enumerate(graphs)
    ]
    found = zero.calibrate(jobs, graphs, cluster)
    assert found[:3] == pytest.approx(values[:3], rel=0.02)


def a_graph(launches: int, calls: int, width: int):
    """Small kernels, small collectives and one product of 2 ranks, with the host of a profile."""
    from prismcore.graph import DataType, Gemm

    builder = GraphBuilder(2)
    world = builder.communicator("world", range(2))
    for r in range(2):
        rank = builder.rank(r)
        for _ in range(launches):
            rank.kernel("small", duration_ns=1, host_ns=1)
        for _ in range(calls):
            rank.all_reduce(world, bytes=8, duration_ns=1, host_ns=1)
        rank.kernel(
            "gemm", gemm=Gemm(m=width, n=4096, k=4096), dtype=DataType.FLOAT16, duration_ns=1, host_ns=1
        )
    return builder.finish({"host": "profile"})


def test_the_profile_differs_from_the_device_in_calibrated_figures_alone(zero):
    plain, fitted = load_device("a100"), load_device(zero.DEVICE)
    for figure in zero.FIGURES:
        figure.put(plain, figure.start)
        figure.put(fitted, figure.start)
    plain.compared_with = fitted.compared_with
    assert plain == fitted
    assert len(zero.FIGURES) <= 10


def test_without_data_it_says_what_to_do(zero, tmp_path, capsys):
    assert zero.main(["--data", str(tmp_path)]) == 1
    assert "PRISM_DATA" in capsys.readouterr().err
    with pytest.raises(zero.AbsentError, match="ground_truth"):
        zero.rows(tmp_path)


def test_the_sample_of_the_measurements(zero):
    measured(zero.TABLE)
    jobs = zero.read_table(DATA)
    chosen = zero.sample(jobs)
    assert (len(jobs), len(chosen)) == (720, 120)
    assert all(job.tp * job.dp * job.pp == job.gpus for job in jobs)
    # Every way of being parallel is in both halves.
    ways = {(j.tp, j.dp, j.pp) for j in jobs}
    assert all({(j.tp, j.dp, j.pp) for j in part} == ways for part in zero.split(chosen))
    assert dataclasses.is_dataclass(chosen[0])


def test_jobs_drawn_beside_the_sample_are_others_and_the_same_each_time(zero):
    sizes = [(h, layers, b) for h in range(1, 12) for layers in range(1, 12) for b in (1, 2)]
    jobs = [
        zero.Job(
            gpus=2, global_batch=8, micro_batch=b, hidden=64 * h, heads=1, layers=layers, sequence=64, tp=1,
            dp=2, pp=1, measured_ms=1.0,
        )
        for h, layers, b in sizes
    ]  # fmt: skip
    found = zero.drawn(jobs)
    assert len({job.name for job in found}) == zero.MORE
    assert not {job.name for job in found} & {job.name for job in zero.sample(jobs)}
    assert zero.drawn(jobs) == found
    assert zero.drawn(jobs, 5) == found[:5]
