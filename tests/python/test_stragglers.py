"""What-if replays against a plain evaluation of the job, and the published results of real ones."""

import json

import numpy as np
import pytest
import straggler_jobs as jobs
from cli_contract import STRAGGLER_KEYS
from cli_runs import inside
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from measurements import measured

from prismcore import GraphBuilder
from prismcore.errors import GraphError
from prismcore.stragglers import analyse
from prismcore.stragglers.analysis import MOST_OPERATIONS
from prismcore.stragglers.what_if import WhatIf
from prismcore.traces.job_sizes import JobSizes, read_job_sizes
from prismcore.traces.straggler import read_straggler
from prismcore.traces.straggler_steps import straggler_steps

pytest.importorskip("pyarrow.parquet", reason="the extra parquet is not installed")

KEYS = {"forward-send": "forward-pp-comm", "forward-recv": "forward-pp-comm"}
KEYS |= {"backward-send": "backward-pp-comm", "backward-recv": "backward-pp-comm"}


def graph_of(path, job):
    sizes = JobSizes(dp=job.dp, pp=job.pp, tp=job.tp, vpp=job.vpp)
    trace = read_straggler(jobs.write(path / "trace.parquet", jobs.rows(job)), sizes)
    return straggler_steps(trace).graph()


def oracle(job, keeps):
    """Mean length of a step without gaps, where ops for which ``keeps`` is false take ideal durations."""
    ops = [op for programs in job.ops for program in programs for op in program]
    by_class = {}
    for op in ops:
        by_class.setdefault(KEYS.get(op.type, op.type), []).append(op.length)
    talks = {op.type for op in ops} - {"forward-compute", "backward-compute", "optimizer", "gc"}
    ideal = {
        name: round(float(np.median(v) if name in talks | {*KEYS.values()} else np.mean(v)))
        for name, v in by_class.items()
    }
    measured = [(op.length, op.gap) for op in ops]
    for op in ops:
        op.gap = 0
        op.length = op.length if keeps(op) else ideal[KEYS.get(op.type, op.type)]
    jobs.evaluate(job)
    mean = np.mean([max(op.end for program in programs for op in program) for programs in job.ops])
    for op, (length, gap) in zip(ops, measured, strict=True):
        op.length, op.gap = length, gap
    return mean


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=10)
@given(
    seed=st.integers(0, 10**6),
    shape=st.sampled_from([{"dp": 2, "pp": 2}, {"dp": 1, "pp": 3, "micro_batches": (5,)}]),
)
def test_replays_are_those_of_the_job(tmp_path, seed, shape):
    job = jobs.make_job(seed, steps=3, spread=1.0, **shape)
    what_if = WhatIf(graph_of(tmp_path, job))

    def close(result, keeps):
        # Ideal durations of classes with an even count are rounded to whole ns, once an op.
        assert abs(result.iteration_time_ns.mean() - oracle(job, keeps)) <= 200

    close(what_if.measured(), lambda op: True)
    close(what_if.ideal(), lambda op: False)
    for name in ("forward-compute", "optimizer-clip-main-grad", "grads-reduce-scatter"):
        close(what_if.only_operation(name), lambda op, n=name: op.type == n)
    close(what_if.only_operation("forward-pp-comm"), lambda op: op.type in ("forward-send", "forward-recv"))
    assert set(what_if.operations) == {
        KEYS.get(op.type, op.type) for op in job.ops[0][0] + job.ops[0][-1] if op.type != "gc"
    }


def test_one_slow_worker_is_found(tmp_path):
    job = jobs.make_job(4, dp=4, pp=2, micro_batches=(4, 4, 4, 4), spread=0.0)
    slow = job.rank(2, 0)
    for op in (op for programs in job.ops for program in programs for op in program):
        op.length *= 2 if op.rank == slow and op.type in jobs.TRAIN else 1
    jobs.evaluate(job)
    report = analyse(graph_of(tmp_path, job))
    assert report.slowest_workers == [(2, 0)]
    assert report.slowdown > 1.3
    assert 0.9 < report.m_slowest_workers < 1.1
    assert abs(report.m_last_stage) < 0.1
    assert max(report.by_dp_rank, key=report.by_dp_rank.get) == 2
    assert max(report.by_stage, key=report.by_stage.get) == 0
    assert report.by_operation["backward-compute"] > report.by_operation["forward-compute"] > 1.05
    assert report.iteration_time_ns >= report.without_gaps_ns > report.ideal_ns


def test_members_that_keep_their_own_duration_end_by_it():
    builder = GraphBuilder(world_size=2)
    world = builder.communicator("world", [0, 1])
    for r in range(2):
        rank = builder.rank(r)
        for length in (10, 10, 400):
            rank.all_reduce(world, bytes=8, duration_ns=length)
            rank.kernel("k", duration_ns=100)
        rank.mark_iteration()
    what_if = WhatIf(builder.finish())
    assert what_if.measured().iteration_time_ns.tolist() == [720]
    assert what_if.ideal().iteration_time_ns.tolist() == [330]
    only = what_if.only_ranks({1})
    assert only.iteration_end_ns[:, 0].tolist() == [330, 720]
    assert what_if.without_ranks({1}).iteration_end_ns[:, 0].tolist() == [720, 330]


def test_graphs_without_workers_and_without_time():
    builder = GraphBuilder(world_size=2)
    for r in range(2):
        builder.rank(r).kernel("k", duration_ns=100 + 100 * r)
        builder.rank(r).mark_iteration()
    report = analyse(builder.finish())
    assert report.slowdown == pytest.approx(200 / 150)
    assert report.by_operation == {"k": pytest.approx(200 / 150)}
    assert (report.by_stage, report.slowest_workers, report.m_last_stage) == ({}, [], None)
    builder = GraphBuilder(world_size=1)
    builder.rank(0).mark_iteration()
    with pytest.raises(GraphError, match="iterations of no length"):
        analyse(builder.finish())
    with pytest.raises(GraphError, match="without ranks"):
        analyse(GraphBuilder(world_size=1).finish())


def test_of_many_operations_those_with_most_excess_are_replayed_alone(tmp_path):
    builder = GraphBuilder(world_size=2)
    for r in range(2):
        for k in range(MOST_OPERATIONS + 40):  # the later, the more they differ between the ranks
            builder.rank(r).kernel(f"k{k}", duration_ns=1000 + k * r)
        builder.rank(r).mark_iteration()
    graph = builder.finish()
    report = analyse(graph)
    assert list(report.by_operation) == [f"k{k}" for k in range(40, MOST_OPERATIONS + 40)]
    what_if = WhatIf(graph)
    excess = what_if.excess_ns()
    assert excess == {f"k{k}": k - round(k / 2) for k in range(MOST_OPERATIONS + 40)}
    assert report.by_operation["k103"] == pytest.approx(
        what_if.only_operation("k103").iteration_time_ns[0] / report.ideal_ns
    )
    graph.save(out := tmp_path / "job.prism")
    assert json.loads(inside("stragglers", out, "--json").stdout)["operations_left_out"] == 40
    assert "40 operations are not replayed alone: the 64 that took most" in inside("stragglers", out).stdout


def test_the_command(tmp_path):
    out = tmp_path / "job.prism"
    graph_of(tmp_path, jobs.make_job(9)).save(out)
    report = json.loads(inside("stragglers", out, "--json").stdout)
    assert list(report) == STRAGGLER_KEYS
    assert report["slowdown"] == pytest.approx(report["without_gaps_ns"] / report["ideal_ns"], rel=1e-6)
    assert set(report["by_stage"]) == {"0", "1"}
    shown = inside("stragglers", out)
    assert (shown.returncode, shown.stderr) == (0, "")
    for text in (
        "slowdown S",
        "share of the last stage",
        "by one dp rank",
        "backward-pp-comm",
    ):
        assert text in shown.stdout
    builder = GraphBuilder(world_size=1)
    builder.rank(0).kernel("k", duration_ns=1)
    builder.finish().save(out)
    assert "does not say which rank is which worker" in inside("stragglers", out).stdout


@pytest.mark.parametrize("name", ["ST", "AR"])
def test_published_results(name):
    """Every published slowdown within 1 %; shares of the slowdown within 0.02 of it."""
    data = measured(f"straggler/trace-{name}.parquet").parent
    trace = read_straggler(data / f"trace-{name}.parquet", read_job_sizes(data / f"meta-{name}.yaml"))
    report = analyse(straggler_steps(trace).graph())
    published = json.loads((data / f"result-{name}.json").read_text())
    found = {
        "optype": report.by_operation,
        "stage": {str(k): v for k, v in report.by_stage.items()},
        "dp_rank": {str(k): v for k, v in report.by_dp_rank.items()},
    }
    assert report.slowdown == pytest.approx(published["blocking_slowdown"], rel=0.01)
    for axis, slowdowns in found.items():
        expected = dict(published[f"blocking_decompose_by_{axis}"])
        expected.pop("gc", None)  # of no length
        assert slowdowns == pytest.approx(expected, rel=0.01)
    for share, key in ((report.m_slowest_workers, "mw"), (report.m_last_stage, "ms")):
        expected = json.loads((data / f"{key}-{name}.json").read_text())[key.capitalize()]
        assert share == pytest.approx(expected, abs=0.02)
