"""Calibration: profiles come back from traces that follow them; what cannot be is refused."""

import dataclasses

import calibrate_jobs
import numpy as np
import pytest
from calibrate_jobs import A100, ADD, ELEMENTS, MIB, PRODUCT, SIZES, SOFTMAX, Job, job_of
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from prismcore import replay
from prismcore.calibrate import Samples, calibrate, merged_samples
from prismcore.calibrate.collectives import fit_links
from prismcore.calibrate.from_graph import samples_of_graph
from prismcore.calibrate.from_traces import samples_of_traces
from prismcore.calibrate.samples import CollectiveKey, CopyKey
from prismcore.comm import collective_cost
from prismcore.cost import KernelShape, kernel_cost
from prismcore.errors import TraceError
from prismcore.graph import CopyDirection, DataType, Gemm, GraphBuilder, Kernel, OpKind, Provenance
from prismcore.profiles.cluster import load_cluster
from prismcore.profiles.device import load_device
from prismcore.traces.kineto import read_kineto_set, stitch_kineto


def samples_in(folder):
    files = sorted(folder.glob("*.json"))
    return samples_of_traces(read_kineto_set(files))


@settings(max_examples=5, deadline=None, phases=(Phase.generate,))  # a job each: too slow to shrink
@given(
    shares=st.tuples(*[st.floats(0.3, 0.95)] * 3),
    links=st.tuples(
        st.tuples(*[st.floats(0, 40)] * 2),  # latencies of LL and Simple, us
        st.tuples(*[st.floats(0.4, 0.99)] * 2),  # shares of their bandwidth
    ),
    gap=st.integers(10_000, 400_000),
    late=st.lists(st.integers(0, 500_000), min_size=2, max_size=8),
)
def test_the_profiles_that_a_job_follows_come_back(tmp_path_factory, shares, links, gap, late):
    latency, bandwidth = links
    folder = tmp_path_factory.mktemp("job")
    device, cluster = load_device("a100"), load_cluster("a100-8x")
    device.efficiency.gemm, device.efficiency.elementwise, device.efficiency.softmax = shares
    device.pcie_bandwidth = 19.5e9
    calibration = cluster.one_node.calibration
    calibration.extra_latency_us.ll, calibration.extra_latency_us.simple = latency
    calibration.bandwidth_efficiency.ll, calibration.bandwidth_efficiency.simple = bandwidth
    job = job_of(device, cluster, late=late, gap=gap)
    found = calibrate(samples_in(job.write(folder / "traces")))

    assert (found.base, found.base_cluster) == ("a100", "a100-8x")
    found_shares = found.device.efficiency
    assert (found_shares.gemm, found_shares.elementwise, found_shares.softmax) == pytest.approx(
        shares, rel=0.01
    )
    assert found.device.pcie_bandwidth == pytest.approx(19.5e9, rel=1e-3)
    assert found.device.host.launch_ns == gap
    core = found.cluster.to_core()
    for size in SIZES:
        members = range(len(late))
        cost = collective_cost("all_reduce", size, members, cluster=core)
        wanted = collective_cost("all_reduce", size, members, cluster=cluster)
        assert cost.duration_ns == pytest.approx(wanted.duration_ns, rel=2e-3)
    assert {(fit.protocol, fit.latency_us is not None) for fit in found.links} >= {
        ("ll", True),
        ("simple", True),
    }


def test_tables_give_what_was_measured(tmp_path):
    device, cluster = load_device("a100"), load_cluster("a100-8x")
    device.efficiency.gemm = 0.61
    job = job_of(device, cluster)
    found = calibrate(samples_in(job.write(tmp_path / "traces")))
    files = found.save(tmp_path / "own.toml")
    assert [path.name for path in files] == ["own.toml", "own.kernels.csv", "own.cluster.toml"]
    loaded = load_device(files[0])
    core = loaded.to_core()
    assert (loaded.sms, loaded.name) == (108, device.name)
    for shape in ((4096, 4096, 1024), (8192, 2048, 4096)):  # n, k, m
        product = KernelShape(dtype="bfloat16", n=shape[0], k=shape[1], m=shape[2], batch=1, transposes=2)
        cost = kernel_cost("gemm_lt:bias", product, core)
        assert (cost.duration_ns, cost.provenance) == (job.product(*shape), "table")
    fused = KernelShape(grid=(777, 1, 1), block=(128, 1, 1), shared_bytes=64)
    assert kernel_cost("triton_poi_fused_7", fused, core).duration_ns == 43_210
    assert kernel_cost("triton_poi_fused_7", fused, load_device("a100").to_core()).provenance == "unknown"
    unseen = KernelShape(dtype="bfloat16", n=4096, k=4096, m=4096, batch=1)
    assert kernel_cost("gemm", unseen, core).provenance == "model"


def test_an_imported_graph_replays_by_the_table_as_it_was_measured(tmp_path):
    job = job_of(load_device("a100"), load_cluster("a100-8x"))
    graph = stitch_kineto(read_kineto_set(sorted(job.write(tmp_path / "traces").glob("*.json")))).graph()
    ops = graph.ops(0)
    assert set(ops["dtype"][ops["kind"] == OpKind.ALL_REDUCE]) == {DataType.BFLOAT16}
    assert set(ops["detail"][ops["kind"] == OpKind.COPY]) == {CopyDirection.HOST_TO_DEVICE}
    kernels = [graph.kernel(i) for i in range(graph.num_kernels)]
    assert Gemm(m=1024, n=4096, k=4096) in {kernel.gemm for kernel in kernels if kernel.name == PRODUCT}
    assert {kernel.grid for kernel in kernels if kernel.name == SOFTMAX} == {(n, 1, 1) for n in ELEMENTS}
    found = calibrate(samples_in(tmp_path / "traces"))
    files = found.save(tmp_path / "own.toml")
    measured = replay(graph)
    device, cluster = load_device(files[0]), load_cluster(files[2])
    again = replay(graph, device=device, cluster=cluster)
    assert again.iteration_time_ns.tolist() == pytest.approx(measured.iteration_time_ns.tolist(), rel=1e-3)
    assert again.provenance["unknown"] == 0
    assert again.provenance["table"] > 0.2
    assert again.provenance["table"] + again.provenance["model"] == pytest.approx(1)

    graph_samples = samples_of_graph(graph, "job.prism")
    by_traces = samples_in(tmp_path / "traces")
    assert {k: sorted(v) for k, v in graph_samples.kernels.items()} == {
        k: sorted(v) for k, v in by_traces.kernels.items()
    }
    assert {(k.kind, k.bytes): sorted(v) for k, v in graph_samples.collectives.items()} == {
        (k.kind, k.bytes): sorted(v) for k, v in by_traces.collectives.items()
    }
    assert not graph_samples.host
    refound = calibrate(graph_samples, base="a100")
    assert {row.name: row.duration_ns for row in refound.table} == {
        row.name: row.duration_ns for row in found.table
    }


@settings(max_examples=12, deadline=None)
@given(
    u=st.floats(0, 100),
    share=st.floats(0.2, 1),
    where=st.tuples(st.sampled_from(["a100-8x", "h100-8x"]), st.sampled_from([1, 2, 4])),
    kind=st.sampled_from([OpKind.ALL_REDUCE, OpKind.ALL_GATHER, OpKind.REDUCE_SCATTER, OpKind.ALL_TO_ALL]),
    outliers=st.booleans(),
)
def test_links_come_back_for_every_kind_and_group(u, share, where, kind, outliers):
    name, nodes = where
    base, truth = load_cluster(name), load_cluster(name)
    graphs = truth.one_node if nodes == 1 else truth.multi_node
    for protocol in ("ll", "ll128", "simple"):
        setattr(graphs.calibration.extra_latency_us, protocol, u)
        setattr(graphs.calibration.bandwidth_efficiency, protocol, share)
    if kind == OpKind.ALL_TO_ALL:  # of its own in [p2p]
        truth = load_cluster(name)
        rate = "nvlink_gbps" if nodes == 1 else "nic_gbps"
        setattr(truth.p2p, rate, getattr(truth.p2p, rate) * share)
        setattr(truth.p2p, "intra_latency_us" if nodes == 1 else "inter_latency_us", u)
    members = tuple(range(8 * nodes))
    core = truth.to_core()
    collectives = {}
    for size in (1 << power for power in range(12, 31, 2)):
        cost = collective_cost(kind.name.lower(), size, members, cluster=core)
        durations = [cost.duration_ns] * 10 + ([cost.duration_ns * 9] * 4 if outliers else [])
        collectives[CollectiveKey(kind=kind, bytes=size, members=members)] = np.array(durations)
    fitted, fits = fit_links(collectives, base, 3)
    assert fits
    found = fitted.to_core()
    for key, durations in collectives.items():
        cost = collective_cost(kind.name.lower(), key.bytes, members, cluster=found)
        assert cost.duration_ns == pytest.approx(durations[0], rel=0.01)
    # where one figure alone is told, the other stays the base's
    for fit in fits:
        assert fit.latency_us is not None or fit.bandwidth is not None


def test_one_size_tells_one_figure():
    base = load_cluster("a100-8x")
    key = CollectiveKey(kind=OpKind.ALL_REDUCE, bytes=64 * MIB, members=tuple(range(8)))
    slow = collective_cost("all_reduce", 64 * MIB, range(8), cluster=base).duration_ns * 2
    fitted, (fit,) = fit_links({key: np.full(10, slow)}, base, 3)
    assert (fit.latency_us, fit.base_latency_us) == (None, 31.1)
    assert fit.bandwidth < 0.6
    assert collective_cost("all_reduce", 64 * MIB, range(8), cluster=fitted).duration_ns == pytest.approx(
        slow, rel=1e-3
    )
    assert fit_links({key: np.full(2, slow)}, base, 3)[1] == []


def test_a_link_of_few_samples_stays_the_bases():
    base = load_cluster("a100-8x")
    key = CollectiveKey(kind=OpKind.ALL_REDUCE, bytes=32 << 10, members=tuple(range(8)))
    samples = Samples(
        source="x",
        ranks=8,
        kernels={Kernel(name="k"): np.full(3, 5000)},
        collectives={key: np.array([24_600, 27_000, 39_800])},
    )
    fitted, (fit,) = fit_links(samples.collectives, base, 3)
    assert (fit.is_fitted, fit.samples, fitted) == (False, 3, base)
    found = calibrate(samples, base="a100")
    assert found.cluster is None
    assert found.warnings[-2:] == [
        "ll on one node stays the base's: 3 samples, fewer than 10",
        "no cluster profile: no collectives of use found (3 of protocols with fewer than 10 samples)",
    ]
    with pytest.raises(TraceError, match=r"3 of protocols with fewer than 10 samples.*--cluster"):
        calibrate(samples, base="a100", cluster="a100-8x")


def test_host_times_between_stalls_stay_the_bases():
    stalled = np.array([30_000] * 30 + [163_000] * 201 + [18_320_000] * 30)
    host = {"launch_ns": stalled, "copy_ns": np.linspace(20_000, 200_000, 50, dtype=np.int64)}
    samples = Samples(source="x", ranks=1, kernels={Kernel(name="k"): np.full(3, 5000)}, host=host)
    found = calibrate(samples, base="a100")
    base = load_device("a100").host
    assert found.device.host.launch_ns == base.launch_ns
    assert found.device.host.copy_ns == 110_000
    assert {row.figure: (row.value_ns, row.why) for row in found.host} == {
        "launch_ns": (None, "stalls"),
        "copy_ns": (110_000, ""),
    }
    assert any("launch_ns stays the base's 25,000 ns" in text for text in found.warnings)


def test_a_share_that_is_worse_than_the_bases_is_not_taken(tmp_path):
    base = load_device("a100")
    names = [(blocks, KernelShape(grid=(blocks, 1, 1), block=(128, 1, 1))) for blocks in ELEMENTS]
    modelled = {blocks: kernel_cost(ADD, shape, base.to_core()).duration_ns for blocks, shape in names}

    def fit(*factors):
        kernels = {
            Kernel(name=ADD, grid=(blocks, 1, 1), block=(128, 1, 1)): np.full(3, round(ns * factor))
            for (blocks, ns), factor in zip(modelled.items(), factors, strict=True)
        }
        found = calibrate(Samples(source="x", ranks=1, kernels=kernels), base="a100")
        return found, *found.families

    # most of the time 5 % faster, the rest so slow that the sum is the base's
    found, family = fit(1.23, 1.05, 0.95)
    assert (family.share, family.fitted_ns) == (None, family.base_ns)
    assert family.rejected > base.efficiency.elementwise
    assert found.device.efficiency == base.efficiency
    found.save(tmp_path / "own.toml")
    assert load_device(tmp_path / "own.toml").efficiency == base.efficiency
    _, family = fit(0.9, 0.9, 0.9)
    assert family.share > base.efficiency.elementwise
    assert family.rejected is None
    assert abs(family.fitted_ns / family.measured_ns - 1) < 0.01


def test_what_has_too_few_samples_stays_out_and_is_counted(tmp_path):
    job = Job(device=load_device("a100"), cluster=load_cluster("a100-8x"), late_ns=[0])
    job.kernel(ADD, 100_000)
    job.kernel(ADD, 100_000)
    job.kernel(SOFTMAX, 100_000)
    samples = samples_in(job.write(tmp_path / "traces"))
    with pytest.raises(TraceError, match=r"at least 3 samples found.*most frequent of 2 has 2"):
        calibrate(samples)
    found = calibrate(samples, least=2)
    assert [(row.in_table, row.measured.count) for row in found.kernels] == [(True, 2), (False, 1)]
    assert len(found.table) == 1
    assert found.cluster is None
    assert "no cluster profile: no collectives found" in found.warnings
    assert all(row.value_ns is None for row in found.host)


@pytest.mark.parametrize(
    ("device", "base", "message"),
    [
        (
            {**A100, "numSms": 132},
            "a100",
            r"NVIDIA A100.*132 SMs.*expected those of NVIDIA A100.*108 SMs.*--base",
        ),
        ({**A100, "totalGlobalMem": 42_000_000_000, "name": "A10"}, "a100", "bytes of memory"),
        ({**A100, "totalGlobalMem": 4_200_000_000}, "a100", "bytes of memory"),
        ({**A100, "totalGlobalMem": 42_000_000_000, "numSms": 107}, None, "expected a device with a profile"),
        (
            {**A100, "computeMajor": 7, "name": "V100"},
            None,
            r"V100 .*expected a device with a profile \(a100.*extends a near one",
        ),
        (
            [A100, {**A100, "name": "Other"}],
            None,
            "Other .*found, where .*expected traces of one kind of device",
        ),
        (None, None, "the device is not told"),
    ],
)
def test_another_device_is_refused(tmp_path, device, base, message):
    job = Job(device=load_device("a100"), cluster=load_cluster("a100-8x"), late_ns=[0, 0])
    job.kernel(ADD, 100)
    traces = read_kineto_set(sorted(job.write(tmp_path / "traces", device=device).glob("*.json")))
    with pytest.raises(TraceError, match=message):
        calibrate(samples_of_traces(traces), base=base, least=1)


@pytest.mark.parametrize("base", [None, "a100"])
def test_a_card_with_another_memory_is_its_kind(tmp_path, base):
    device = {**A100, "name": "NVIDIA A100-PG509-200", "totalGlobalMem": 42_297_524_224}
    job = Job(device=load_device("a100"), cluster=load_cluster("a100-8x"), late_ns=[0])
    job.kernel(ADD, 100)
    folder = job.write(tmp_path / "traces", device=device)
    found = calibrate(samples_in(folder), base=base, least=1)
    assert (found.base, found.device.memory_bytes) == ("a100", 42_297_524_224)
    assert any("bandwidth stays the base's (2,039 GB/s" in text for text in found.warnings)
    found.save(tmp_path / "own.toml")
    assert load_device(tmp_path / "own.toml").memory_bytes == 42_297_524_224
    plain = calibrate(samples_in(job.write(tmp_path / "plain")), least=1)
    assert plain.memory_bytes is None


def test_a_modelled_graph_is_no_source(tmp_path):
    builder = GraphBuilder(world_size=1)
    builder.rank(0).kernel("gemm", duration_ns=1000, provenance=Provenance.MODEL)
    with pytest.raises(TraceError, match=r"job\.prism: none of its durations was measured"):
        samples_of_graph(builder.finish({}), "job.prism")


def test_samples_are_named_by_their_files(tmp_path):
    job = Job(device=load_device("a100"), cluster=load_cluster("a100-8x"), late_ns=[0, 0])
    job.kernel(ADD, 100)
    folder = job.write(tmp_path / "traces")
    assert samples_in(folder).source == f"{folder} (ranks 0-1)"
    one = sorted(folder.glob("*.json"))[:1]
    assert samples_of_traces(read_kineto_set(one)).source == str(one[0])


def test_a_calibrated_profile_vouches_for_no_more_than_its_base(tmp_path):
    job = job_of(load_device("a100"), load_cluster("a100-8x"))
    found = calibrate(samples_in(job.write(tmp_path / "traces")))
    files = found.save(tmp_path / "own.toml")
    device, cluster = load_device(files[0]), load_cluster(files[2])
    assert device.compared_with == load_device("a100").compared_with
    assert device.fitted_to == f"traces of {tmp_path / 'traces'} (ranks 0-3) on {A100['name']}"
    assert cluster.one_node.compared_with == load_cluster("a100-8x").one_node.compared_with
    assert cluster.one_node.fitted_to == device.fitted_to
    bare = tmp_path / "bare.toml"  # of a kind that nobody compared
    bare.write_text('base = "h100"\n')
    found.base = str(bare)
    assert load_device(found.save(tmp_path / "two.toml")[0]).compared_with is None


@pytest.mark.parametrize(
    "device",
    [
        {**A100, "name": "A100\nbase = 3"},
        {**A100, "id": ["x"], "numSms": 1e400},
        {**A100, "totalGlobalMem": "85174583296"},
        {**A100, "computeMajor": True},
        {"id": 0},
        "A100",
        7,
    ],
)
def test_a_device_that_is_told_oddly_is_not_told(tmp_path, device):
    job = Job(device=load_device("a100"), cluster=load_cluster("a100-8x"), late_ns=[0])
    job.kernel(ADD, 100)
    samples = samples_in(job.write(tmp_path / "traces", device=device))
    assert samples.device is None
    assert (
        "the traces do not tell their device: taken to be that of a100"
        in calibrate(samples, base="a100", least=1).warnings
    )


@settings(max_examples=12, deadline=None, phases=(Phase.generate,))
@given(
    kernel=st.tuples(st.text(max_size=9), st.lists(st.integers(0, 2**54), min_size=3, max_size=3)),
    size=st.integers(0, 2**40),
    host=st.integers(0, 2**40),
    link=st.integers(0, 2**54),
)
def test_whatever_was_measured_makes_profiles_that_can_be_read(tmp_path_factory, kernel, size, host, link):
    name, durations = kernel
    members = tuple(range(8))
    samples = Samples(
        source="absurd traces",
        ranks=8,
        kernels={
            Kernel(name="k", grid=(3, 1, 1)): np.array([5000] * 3),
            Kernel(name=name, grid=(2**32 - 1, 1, 1)): np.array(durations),
            Kernel(name=name, gemm=Gemm(m=2**40, n=1, k=2**40), dtype=DataType.BFLOAT16): np.array(durations),
        },
        copies={CopyKey(direction=CopyDirection.HOST_TO_DEVICE, bytes=size): np.array(durations)},
        host={"launch_ns": np.full(30, host), "query_ns": np.full(30, host)},
        collectives={
            CollectiveKey(kind=kind, bytes=nbytes, members=members): np.full(10, link)
            for kind in (OpKind.ALL_REDUCE, OpKind.ALL_TO_ALL)
            for nbytes in (1, size + 1)
        },
    )
    found = calibrate(samples, base="a100")
    files = found.save(tmp_path_factory.mktemp("own") / "own.toml")
    assert load_device(files[0]).rows == found.table
    for file in files[2:]:
        load_cluster(file).to_core()


def test_collectives_whose_members_lack_a_trace_tell_nothing(tmp_path):
    folder = job_of(load_device("a100"), load_cluster("a100-8x")).write(tmp_path / "traces")
    (folder / "rank1_trace.json").unlink()
    samples = samples_in(folder)
    assert samples.collectives == {}
    assert samples.collectives_left_out == {"members without a trace": 6 * len(SIZES)}
    with pytest.raises(
        TraceError, match=r"no collectives of use found \(30 members without a trace\).*--cluster"
    ):
        calibrate(samples, cluster="a100-8x")
    assert calibrate(samples).cluster is None


def test_jobs_of_different_devices_are_not_merged(tmp_path):
    job = Job(device=load_device("a100"), cluster=load_cluster("a100-8x"), late_ns=[0])
    job.kernel(ADD, 100)
    one = samples_in(job.write(tmp_path / "one"))
    two = dataclasses.replace(one, device=dataclasses.replace(one.device, name="Other"))
    with pytest.raises(TraceError, match="different devices"):
        merged_samples([one, two])
    both = merged_samples([one, one])
    assert {len(durations) for durations in both.kernels.values()} == {2}
    with pytest.raises(TraceError, match="no traces"):
        merged_samples([])


def test_names_of_products_follow_the_mode():
    assert calibrate_jobs.PRODUCT == PRODUCT
    from prismcore.calibrate.kernels import product_name

    assert product_name("sm80_xmma_gemm_f32f32_tf32f32_f32_nn") == "product:tf32"
    assert product_name(PRODUCT) == "product"
