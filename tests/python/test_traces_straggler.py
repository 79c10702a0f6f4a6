"""Op-level traces of pipeline jobs: replay against a plain evaluation, damaged files, real data."""

import json
import random

import numpy as np
import pytest
import straggler_jobs as jobs
from cli_contract import IMPORT_KEYS
from cli_runs import inside
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from measurements import measured

import prismcore
from prismcore.errors import TraceError
from prismcore.stragglers.what_if import WhatIf
from prismcore.traces.job_sizes import JobSizes, read_job_sizes
from prismcore.traces.straggler import OPERATIONS, UNRECORDED, Operation, read_straggler
from prismcore.traces.straggler_steps import straggler_steps

parquet = pytest.importorskip("pyarrow.parquet", reason="the extra parquet is not installed")

SHAPES = [
    {"dp": 2, "pp": 2, "micro_batches": (4, 4)},
    {"dp": 1, "pp": 3, "micro_batches": (5,)},
    {"dp": 3, "pp": 4, "micro_batches": (6, 4, 5)},
    {"dp": 2, "pp": 1, "micro_batches": (3, 2)},
    {"dp": 2, "pp": 2, "micro_batches": (4, 4), "blocking": False},
    {"dp": 2, "pp": 4, "vpp": 2, "micro_batches": (8, 4), "blocking": False},
    {"dp": 1, "pp": 2, "vpp": 3, "micro_batches": (6,), "blocking": False, "tp": 4},
]
files = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=20)


def sizes_of(job):
    return JobSizes(dp=job.dp, pp=job.pp, tp=job.tp, vpp=job.vpp)


def imported(path, job, **changes):
    return straggler_steps(
        read_straggler(jobs.write(path / "trace.parquet", jobs.rows(job, **changes)), sizes_of(job))
    )


@files
@given(seed=st.integers(0, 10**6), shape=st.sampled_from(SHAPES))
def test_steps_replay_as_the_job_ran(tmp_path, seed, shape):
    job = jobs.make_job(seed, **shape)
    steps = imported(tmp_path, job, ids=[7, 3])
    assert steps.steps == [7, 3]
    result = prismcore.replay(steps.graph())
    assert result.iteration_time_ns.tolist() == jobs.evaluate(job)
    assert result.iteration_time_ns.tolist() == steps.measured_ns.tolist()
    assert result.provenance["measured"] == 1
    assert not [w for w in [*steps.warnings, *result.warnings] if "ranks are in the trace" not in w]


@files
@given(seed=st.integers(0, 10**6), shape=st.sampled_from(SHAPES[:4]), slow=st.integers(0, 3))
def test_other_lengths_replay_as_the_job_would_have_run(tmp_path, seed, shape, slow):
    """Where messages block, the dependencies found are those of the job: the oracle with one slow rank."""
    job = jobs.make_job(seed, steps=6, **shape)
    slow = job.rank(slow % job.dp, slow % job.pp)
    steps = imported(tmp_path, job)
    chosen = (steps.of.rows.rank == slow) & np.isin(steps.of.operation, [0, 1])
    steps.timing.duration_ns[chosen] *= 3
    offset = begins(job)
    for op in (op for programs in job.ops for program in programs for op in program):
        op.length *= 3 if op.rank == slow and op.type in jobs.TRAIN else 1
    jobs.evaluate(job)
    ends = [max(op.end for program in programs for op in program) for programs in job.ops]
    found = prismcore.replay(steps.graph()).iteration_time_ns
    assert found.tolist() == [end - first for end, first in zip(ends, offset, strict=True)]


@pytest.mark.parametrize("seed", range(4))
def test_a_meeting_that_is_not_recorded_is_found(tmp_path, seed):
    """The oracle's last stage meets after its last backward, the rows do not say so: with another rank
    slow the replay still takes what the job would have."""
    job = jobs.make_job(seed, dp=3, pp=2, micro_batches=(4, 3, 4), steps=6, loss=True)
    steps = imported(tmp_path, job)
    assert [w.partition(" after")[0] for w in steps.warnings] == [
        "the ranks of stage 1: an unrecorded meeting"
    ]
    assert prismcore.replay(steps.graph()).iteration_time_ns.tolist() == steps.measured_ns.tolist()
    slow = job.rank(seed % job.dp, seed % job.pp)
    steps.timing.duration_ns[(steps.of.rows.rank == slow) & np.isin(steps.of.operation, [0, 1])] *= 3
    offset = begins(job)
    for op in (op for programs in job.ops for program in programs for op in program):
        op.length *= 3 if op.rank == slow and op.type in jobs.TRAIN else 1
    jobs.evaluate(job)
    ends = [max(op.end for program in programs for op in program) for programs in job.ops]
    graph = steps.graph()
    found = prismcore.replay(graph).iteration_time_ns
    assert found.tolist() == [end - first for end, first in zip(ends, offset, strict=True)]
    assert "stage-meeting" not in WhatIf(graph).operations


@files
@given(seed=st.integers(0, 10**6), shape=st.sampled_from(SHAPES[4:]))
def test_overlapping_jobs_without_their_straggler(tmp_path, seed, shape):
    """Where messages overlap compute, nothing waits for less than the job says, and little for more."""
    job = jobs.make_job(seed, steps=3, spread=2.0, **shape)
    steps = imported(tmp_path, job)
    compute = np.isin(steps.of.operation, [0, 1])
    offset = begins(job)
    steps.timing.duration_ns[compute] //= 2
    for op in (op for programs in job.ops for program in programs for op in program):
        op.length //= 2 if op.type in jobs.TRAIN else 1
    jobs.evaluate(job)
    ends = [max(op.end for program in programs for op in program) for programs in job.ops]
    wanted = np.array([end - first for end, first in zip(ends, offset, strict=True)])
    found = prismcore.replay(steps.graph()).iteration_time_ns
    assert (np.abs(found - wanted) <= 0.05 * wanted).all(), (found, wanted)


def begins(job):
    """When each step began on the clock of the oracle."""
    return [min(op.ready for program in programs for op in program) for programs in job.ops]


def test_columns_are_those_of_the_file(tmp_path):
    job = jobs.make_job(5, dp=2, pp=2, micro_batches=(3, 2), tp=2)
    columns = jobs.rows(job)
    trace = read_straggler(jobs.write(tmp_path / "t.parquet", columns), sizes_of(job))
    assert [OPERATIONS[o] for o in trace.operation] == columns["optype"]
    assert trace.rank.tolist() == columns["rank"]
    assert trace.start_ns.tolist() == [round(t * 1e9) for t in columns["start_ts"]]
    assert trace.ranks == [0, 2, 4, 6]
    assert trace.step_time_ns().tolist() == jobs.evaluate(job)
    assert [w.partition(" (")[0] for w in trace.warnings] == ["4 of 8 ranks are in the trace"]
    assert tuple(o.label for o in Operation if o not in UNRECORDED) == OPERATIONS


@pytest.mark.parametrize("shape", [SHAPES[2], SHAPES[5]], ids=["blocking", "interleaved"])
def test_absent_ranks_are_named_and_the_rest_replays(tmp_path, shape):
    job = jobs.make_job(3, **shape)
    absent = job.rank(1, 1), job.rank(0, 3)
    steps = imported(tmp_path, job, absent=absent)
    result = prismcore.replay(steps.graph())
    text = " ".join(steps.warnings)
    assert "no rank is there of dp 0 stage 3, dp 1 stage 1" in text
    assert "have no other side in the trace" in text
    assert result.ranks.tolist() == sorted(
        job.rank(d, s) for d in range(job.dp) for s in range(job.pp) if job.rank(d, s) not in absent
    )
    assert result.iteration_time_ns.tolist() == steps.measured_ns.tolist()


def test_tensor_parallel_ranks_that_are_there_meet(tmp_path):
    """Two ranks at each place: layernorm gradients are reduced between them, messages go rank by rank."""
    job = jobs.make_job(11, dp=1, pp=2, micro_batches=(2,), tp=2)
    columns = jobs.rows(job)
    twins = {k: list(v) for k, v in columns.items()}
    twins["rank"] = [r + 1 for r in twins["rank"]]
    both = {k: columns[k] + twins[k] for k in columns}
    steps = straggler_steps(read_straggler(jobs.write(tmp_path / "t.parquet", both), sizes_of(job)))
    assert steps.warnings == []
    members = {name: set() for name, _ in steps.ops.communicators}
    for name, ranks in steps.ops.communicators:
        members[name].add(ranks)
    assert members["layernorm-grads-all-reduce"] == {(0, 1), (2, 3)}
    assert members["forward-pp-comm"] == {(0, 2), (1, 3)}
    assert members["optimizer-clip-main-grad"] == {(0, 1, 2, 3)}
    assert prismcore.replay(steps.graph()).iteration_time_ns.tolist() == jobs.evaluate(job)


def test_lost_rows_are_told_and_the_rest_replays(tmp_path):
    job = jobs.make_job(8, dp=2, pp=4, micro_batches=(6, 6), steps=3)
    columns = jobs.rows(job)
    kept = random.Random(1).sample(range(len(columns["rank"])), len(columns["rank"]) * 9 // 10)
    lost = {k: [v[i] for i in sorted(kept)] for k, v in columns.items()}
    steps = straggler_steps(read_straggler(jobs.write(tmp_path / "t.parquet", lost), sizes_of(job)))
    assert any("no other side" in w for w in steps.warnings)
    found = prismcore.replay(steps.graph()).iteration_time_ns
    assert np.abs(found / steps.measured_ns - 1).max() < 1e-3


def damaged(change):
    job = jobs.make_job(2, dp=2, pp=2, micro_batches=(2, 2), steps=1)
    columns = jobs.rows(job)
    change(columns)
    return columns


def told(path, sizes=None):
    """The error of an import and replay; "" where it works."""
    try:
        prismcore.replay(straggler_steps(read_straggler(path, sizes)).graph())
    except prismcore.errors.PrismError as error:
        return str(error)
    return ""


def put(column, at, value):
    return lambda columns: columns[column].__setitem__(at, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("duration", 5, float("nan")), "row 5: duration nan found"),
        (put("duration", 5, -1e-3), "row 5: duration -0.001 found"),
        (put("start_ts", 0, float("inf")), "row 0: start_ts inf found"),
        (put("start_ts", 0, 1e300), "row 0: start_ts 1e\\+300 found"),
        (put("duration", 1, None), "1 rows without duration"),
        (put("optype", 1, None), "1 rows without optype"),
        (put("rank", 0, 5), "rank 5 found, expected one below 4"),
        (put("rank", 0, 2**40), "row 0: rank 1099511627776 found"),
        (put("rank", 0, -1), "row 0: rank -1 found"),
        (put("stage", 0, 1), "rank 0 at data-parallel rank 0, stage 1 and at 0, 0 found"),
        (put("seq_id", 2, 5), None),
        (
            lambda c: [v.append(v[0]) for v in c.values()],
            "all-gather 0 of rank 0 in step 0 found twice",
        ),
        (lambda c: c.pop("gmc"), "gmc expected too"),
        (lambda c: c.update(duration=["long"] * len(c["rank"])), "column duration of object found"),
        (lambda c: c.update(rank=[0.5] * len(c["rank"])), "column rank of float64 found"),
        (lambda c: c.update(optype=list(range(len(c["rank"])))), None),
        (lambda c: [v.clear() for v in c.values()], "column"),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path, change, message):
    path = jobs.write(tmp_path / "t.parquet", damaged(change))
    sizes = JobSizes(dp=2, pp=2)
    if message is None:  # odd, but possible, or told in another way
        assert "\n" not in told(path, sizes)
        return
    with pytest.raises(TraceError, match=message) as caught:
        straggler_steps(read_straggler(path, sizes))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_parquet(tmp_path):
    whole = jobs.write(tmp_path / "t.parquet", damaged(lambda c: None)).read_bytes()
    path = tmp_path / "bad.parquet"
    for data in (b"", b"PAR1", whole[: len(whole) // 2], b"\0" * 1000, whole[:-40] + b"\xff" * 40):
        path.write_bytes(data)
        with pytest.raises(TraceError, match="not a readable parquet file"):
            read_straggler(path)
    with pytest.raises(TraceError, match="no such file"):
        read_straggler(tmp_path / "absent.parquet")
    with pytest.raises(TraceError, match="is a folder, expected a trace in parquet"):
        read_straggler(tmp_path)
    path.write_bytes(b'{"traceEvents": []}')
    with pytest.raises(TraceError, match="prism import kineto takes it"):
        read_straggler(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.data())
def test_any_changed_bytes_are_an_error_or_a_trace(tmp_path, data):
    whole = bytearray(jobs.write(tmp_path / "t.parquet", damaged(lambda c: None)).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "changed.parquet"
    path.write_bytes(whole)
    assert "\n" not in told(path)


def test_unknown_types_are_left_out_with_a_warning(tmp_path):
    columns = damaged(put("optype", 0, "data-loading"))
    trace = read_straggler(jobs.write(tmp_path / "t.parquet", columns))
    assert "ops of unknown types are left out: data-loading (1)" in trace.warnings
    assert any("sizes are taken from the trace (dp 2, pp 2, tp 1, world 4)" in w for w in trace.warnings)
    columns["optype"] = ["?"] * len(columns["optype"])
    with pytest.raises(TraceError, match="no ops found"):
        read_straggler(jobs.write(tmp_path / "t.parquet", columns))


def renamed(columns, before, after):
    return {**columns, "optype": [after if o == before else o for o in columns["optype"]]}


@pytest.mark.parametrize(
    "shape", [SHAPES[0], SHAPES[3], SHAPES[5], {"dp": 1, "pp": 1, "micro_batches": (3,)}]
)
def test_gradients_reduced_apart_and_a_collector_that_takes_time(tmp_path, shape):
    """``separate-grads-all-reduce`` in place of the reduce-scatter, and ``gc`` of some length."""
    job = jobs.make_job(4, **shape)
    for op in (op for programs in job.ops for program in programs for op in program):
        if op.type == "gc":
            op.length = 7_000_000
    lengths = jobs.evaluate(job)
    columns = renamed(jobs.rows(job), "grads-reduce-scatter", "separate-grads-all-reduce")
    steps = straggler_steps(read_straggler(jobs.write(tmp_path / "t.parquet", columns), sizes_of(job)))
    # The collector runs beside collectives of its lane where the schedule is interleaved.
    assert [text for text in steps.warnings if "close a circle" not in text and "end later" not in text] == []
    assert prismcore.replay(steps.graph()).iteration_time_ns.tolist() == lengths
    reduced = {members for name, members in steps.ops.communicators if name == "separate-grads-all-reduce"}
    stages = {tuple(job.rank(d, s) for d in range(job.dp)) for s in range(job.pp)}
    assert reduced == stages


@pytest.mark.parametrize("counted", [False, True], ids=["one dp rank", "dp ranks of their own"])
def test_replicas_of_sequence_parallelism_meet(tmp_path, counted):
    """Two ranks at each place that share its parameters: in one all-gather, but messages of their own."""
    job = jobs.make_job(12, dp=2, pp=2, micro_batches=(2, 2), tp=2)
    columns = jobs.rows(job)
    twins = {k: list(v) for k, v in columns.items()}
    twins["rank"] = [r + 1 for r in twins["rank"]]
    if counted:
        columns["dp_rank"], twins["dp_rank"] = (
            [2 * d + replica for d in columns["dp_rank"]] for replica in range(2)
        )
    both = {k: columns[k] + twins[k] for k in columns}
    sizes = JobSizes(dp=2, pp=2, dsp=2)
    steps = straggler_steps(read_straggler(jobs.write(tmp_path / "t.parquet", both), sizes))
    assert steps.warnings == []
    members = {name: set() for name, _ in steps.ops.communicators}
    for name, ranks in steps.ops.communicators:
        members[name].add(ranks)
    assert members["params-all-gather"] == {(0, 1, 2, 3), (4, 5, 6, 7)}
    assert members["forward-pp-comm"] == {(0, 4), (1, 5), (2, 6), (3, 7)}
    assert prismcore.replay(steps.graph()).iteration_time_ns.tolist() == jobs.evaluate(job)


def test_other_types_and_orders_of_columns(tmp_path):
    """As other writers may have them: small whole numbers, names as a dictionary, more columns, steps and
    rows in any order."""
    import pyarrow as pa

    job = jobs.make_job(9, dp=2, pp=2, micro_batches=(3, 3), steps=3)
    columns = jobs.rows(job, ids=[30, 10, 20])
    order = sorted(range(len(columns["rank"])), key=lambda i: (-columns["rank"][i], columns["start_ts"][i]))
    table = {k: pa.array([v[i] for i in order]) for k, v in reversed(columns.items())}
    table |= {k: table[k].cast(pa.int32()) for k in ("step", "seq_id", "gmc", "mc")}
    table |= {"rank": table["rank"].cast(pa.uint8()), "optype": table["optype"].dictionary_encode()}
    path = jobs.write(tmp_path / "t.parquet", {**table, "host": pa.array(["a"] * len(order))})
    trace = read_straggler(path, sizes_of(job))
    lengths = dict(zip([30, 10, 20], jobs.evaluate(job), strict=True))
    found = prismcore.replay(straggler_steps(trace).graph()).iteration_time_ns.tolist()
    assert found == [lengths[step] for step in trace.steps]


def test_sizes_are_read_from_flat_yaml(tmp_path):
    path = tmp_path / "meta.yaml"
    path.write_text("trial_name: X: 1 # a\nrun_id: 0\n\ndp_size: 2 # replicas\npp_size: 4\ntp_size: '8'\n")
    assert read_job_sizes(path) == JobSizes(dp=2, pp=4, tp=8, world=64)
    for text, message in (
        ("dp_size: 2\n", "no pp_size found"),
        ("dp_size: two\npp_size: 1\n", "line 1: dp_size 'two' found"),
        ("dp_size: 0\npp_size: 1\n", "dp size 0 found"),
        ("dp_size: 2\npp_size: 1\ndp_size: 8\n", "line 3: dp_size 8 found, and 2 before"),
        ("dp_size: 1\npp_size: 99999999\n", "pp size 99999999 found"),
        ("\0\1", "no dp_size found"),
    ):
        path.write_text(text)
        with pytest.raises(TraceError, match=message):
            read_job_sizes(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(TraceError, match="no UTF-8 text"):
        read_job_sizes(path)
    with pytest.raises(TraceError, match="No such file"):
        read_job_sizes(tmp_path / "absent.yaml")


def test_the_command_writes_a_graph_that_replays(tmp_path):
    job = jobs.make_job(1, **SHAPES[5])
    trace = jobs.write(tmp_path / "trace.parquet", jobs.rows(job))
    out = tmp_path / "job.prism"
    for sizes in (("--dp", 2, "--pp", 4, "--vpp", 2), ("--meta", tmp_path / "meta.yaml", "--tp", 1)):
        (tmp_path / "meta.yaml").write_text("dp_size: 2\npp_size: 4\ntp_size: 9\nvpp_size: 2\n")
        done = inside("import", "straggler", trace, *sizes, "-o", out, "--json")
        assert (done.returncode, done.stderr) == (0, "")
        report = json.loads(done.stdout)
        assert list(report) == IMPORT_KEYS
        assert (report["world_size"], report["ranks"], report["iterations"]) == (8, 8, 2)
        assert report["provenance"]["measured"] == 1
        assert report["warnings"] == []
    replayed = json.loads(inside("replay", out, "--json").stdout)
    assert replayed["iteration_time_ns"] == jobs.evaluate(job)
    shown = inside("import", "straggler", trace, "-o", out)
    assert f"next: prism replay {out}" in shown.stdout
    assert "warning: the job's sizes are taken from the trace" in shown.stdout


def test_the_command_refuses_in_one_line(tmp_path):
    trace = jobs.write(tmp_path / "trace.parquet", jobs.rows(jobs.make_job(1)))
    out = tmp_path / "job.prism"
    for args, code, message in (
        (("--dp", 2), 2, "--dp and --pp are needed"),
        (("--dp", 1, "--pp", 2), 1, "rank 3 found, expected one below 2"),
        (("--meta", tmp_path / "none.yaml"), 1, "No such file"),
    ):
        done = inside("import", "straggler", trace, *args, "-o", out)
        assert (done.returncode, done.stdout) == (code, "")
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
    assert inside("import", "straggler", trace, "-o", trace).returncode == 1
    assert not out.exists()


@pytest.mark.parametrize("name", ["AR", "ST"])
def test_measured_jobs_replay_each_step(name):
    data = measured(f"straggler/trace-{name}.parquet").parent
    sizes = read_job_sizes(data / f"meta-{name}.yaml")
    steps = straggler_steps(read_straggler(data / f"trace-{name}.parquet", sizes))
    published = json.loads((data / f"result-{name}.json").read_text())
    actual = np.array([published["step_t_base"][str(s)] for s in steps.steps])
    result = prismcore.replay(steps.graph())
    assert np.abs(result.iteration_time_ns / 1e9 / actual - 1).mean() <= 1e-3
    assert result.warnings == []


@files
@given(seed=st.integers(0, 10**6), shape=st.sampled_from(SHAPES[:6]))
def test_a_typical_step_has_the_means_as_far_as_its_length_allows(tmp_path, seed, shape):
    job = jobs.make_job(seed, steps=3, **shape)
    steps = imported(tmp_path, job, ids=[5, 6, 9])
    typical = steps.typical()
    rows, ops = steps.of.rows, {}
    for i in range(len(rows.rank)):
        key = rows.rank[i], steps.of.operation[i], steps.of.number[i]
        ops.setdefault(key, []).append((steps.timing.gap_ns[i], steps.timing.duration_ns[i]))
    one, at = typical.of, steps.steps.index(typical.steps[0])
    assert len(one.operation) == len(ops)
    for i in range(len(one.operation)):
        found = typical.timing.gap_ns[i], typical.timing.duration_ns[i]
        key = one.rows.rank[i], one.operation[i], one.number[i]
        for value, column in zip(found, zip(*ops[key], strict=True), strict=True):
            mean = np.mean(column)
            assert value == pytest.approx(mean + typical.own_share * (column[at] - mean), abs=1.01)
    (length,) = prismcore.replay(typical.graph()).iteration_time_ns.tolist()
    lengths = jobs.evaluate(job)
    nearest = min(lengths, key=lambda one: abs(one - np.mean(lengths)))
    if typical.own_share < 1:
        assert length >= 0.999 * np.mean(lengths)
    else:  # even the step itself is shorter than the mean
        assert length == nearest


def test_a_typical_step_of_ops_that_vary_is_as_long_as_others(tmp_path):
    """Means alone replay too fast: in no step are all ops as fast as in the mean at once."""
    job = jobs.make_job(3, dp=4, pp=2, micro_batches=(4, 4, 4, 4), steps=16)
    rng = random.Random(5)
    for op in (op for programs in job.ops for program in programs for op in program):
        op.length = int(op.length * rng.uniform(0.5, 2)) if op.type in jobs.TRAIN else op.length
    lengths = np.array(jobs.evaluate(job))
    trace = read_straggler(jobs.write(tmp_path / "t.parquet", jobs.rows(job)), sizes_of(job))
    typical = straggler_steps(trace.only(range(0, 16, 2))).typical()
    predicted = prismcore.replay(typical.graph()).iteration_time_ns[0]
    assert 0 < typical.own_share < 1
    assert typical.graph().metadata["typical_of_steps"] == 8
    errors = [np.abs(length / lengths[1::2] - 1).mean() for length in (predicted, lengths[::2].mean())]
    assert errors[0] <= errors[1] + 0.002


def test_chosen_steps(tmp_path):
    job = jobs.make_job(6, steps=4)
    trace = read_straggler(
        jobs.write(tmp_path / "t.parquet", jobs.rows(job, ids=[9, 4, 7, 2])), sizes_of(job)
    )
    lengths = jobs.evaluate(job)
    chosen = trace.only([3, 0])
    assert chosen.steps == [2, 9]
    assert chosen.step_time_ns().tolist() == [lengths[3], lengths[0]]
    assert prismcore.replay(straggler_steps(chosen).graph()).iteration_time_ns.tolist() == [
        lengths[3],
        lengths[0],
    ]
    for positions, message in (([4], "step 4 found"), ([], "no step found"), ([-1], "step -1 found")):
        with pytest.raises(TraceError, match=message):
            trace.only(positions)


def test_the_command_takes_steps_and_a_typical_one(tmp_path):
    job = jobs.make_job(6, steps=4)
    trace, out = jobs.write(tmp_path / "t.parquet", jobs.rows(job)), tmp_path / "job.prism"
    args = ("import", "straggler", trace, "-o", out, "--dp", 2, "--pp", 2, "--json")
    assert json.loads(inside(*args, "--steps", "1-2").stdout)["iterations"] == 2
    assert json.loads(inside(*args, "--steps", "0,2", "--typical").stdout)["iterations"] == 1
    typical = prismcore.Graph.open(out)
    assert typical.metadata["typical_of_steps"] == 2
    assert "measured_iteration_time_ns" not in typical.metadata
    assert typical.string(int(typical.ops(0)["ref"][-1])) == "typical of 2 steps"
    done = inside(*args, "--steps", "4")
    assert (done.returncode, "positions from 0 to 3" in done.stderr) == (1, True)


@pytest.mark.parametrize(("name", "most"), [("AR", 0.0058), ("ST", 0.015)])
def test_odd_steps_are_predicted_from_even_ones(name, most):
    data = measured(f"straggler/trace-{name}.parquet").parent
    trace = read_straggler(data / f"trace-{name}.parquet", read_job_sizes(data / f"meta-{name}.yaml"))
    learned = straggler_steps(trace.only(range(0, len(trace.steps), 2)))
    predicted = prismcore.replay(learned.typical().graph()).iteration_time_ns[0]
    odd = trace.step_time_ns()[1::2]
    assert np.abs(predicted / odd - 1).mean() <= most
