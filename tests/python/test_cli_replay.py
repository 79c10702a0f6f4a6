"""``prism replay`` as a user meets it."""

import json

import jobs
from cli_contract import REPLAY_KEYS, WAIT_KEYS
from cli_runs import inside, prism

from prismcore.profiles.cluster import cluster_text
from prismcore.units import format_ns


def test_replay_json(graphs):
    done = prism("replay", graphs / "job.prism", "--json", "--ranks", "1")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert list(report) == [*REPLAY_KEYS, "ranks"]
    assert set(report["peak_allocated_bytes"]) == {"max", "rank"}
    assert len(report["iteration_time_ns"]) == 3
    parts = ("compute_ns", "exposed_communication_ns", "waiting_ns", "host_ns", "idle_ns")
    for split in (report, *report["ranks"].values()):
        assert sum(split[part] for part in parts) > 0
        assert set(REPLAY_KEYS[:8]) <= set(split)
    # 4 x (1,000,000 + 1,000) of kernels and 2,000 of copy, the same in each iteration.
    assert report["compute_ns"] == 4 * 1_001_000 + 2_000
    assert any("vectorized_elementwise_kernel (36)" in warning for warning in report["warnings"])


def test_replay_with_a_slow_rank(graphs):
    job = graphs / "job.prism"
    plain = json.loads(inside("replay", job, "--json", "--ranks", "0-2").stdout)
    slow = json.loads(inside("replay", job, "--json", "--ranks", "0-2", "--slow-rank", "1:2").stdout)
    assert slow["ranks"]["1"]["compute_ns"] == plain["ranks"]["1"]["compute_ns"] + 4 * 1_001_000
    assert slow["ranks"]["0"]["compute_ns"] == plain["ranks"]["0"]["compute_ns"]
    assert slow["median_iteration_time_ns"] > plain["median_iteration_time_ns"]
    window = f"1:2@0ns-{plain['iteration_time_ns'][0] // 4}ns"
    part = json.loads(inside("replay", job, "--json", "--slow-rank", window).stdout)
    assert part["median_iteration_time_ns"] == plain["median_iteration_time_ns"]
    assert part["iteration_time_ns"][0] > plain["iteration_time_ns"][0]


def test_replay_with_slow_links_jitter_and_a_clock_curve(tmp_path):
    job = tmp_path / "job.prism"
    jobs.pipeline(metadata={**jobs.METADATA, "cluster": cluster_text("h100-8x")}).save(job)

    def replayed(*flags):
        return json.loads(inside("replay", job, "--json", "--ranks", "0-2", *flags).stdout)

    plain = replayed()
    links = replayed("--slow-link", "0-1:3", "--slow-link", "1-2:1.5@0ns-1s")
    assert links["communication_ns"] > plain["communication_ns"]
    assert links["compute_ns"] == plain["compute_ns"]
    uneven = replayed("--jitter", "7:0.1")
    again = replayed("--jitter", "7:0.1", "--threads", "2")
    for report in (uneven, again):
        del report["wall_time_s"]
    assert uneven == again
    assert uneven["compute_ns"] != plain["compute_ns"]
    assert uneven["compute_ns"] != replayed("--jitter", "8:0.1")["compute_ns"]
    (tmp_path / "hot.csv").write_text("time_s,clock_mhz\n0,1980\n0.001,990\n")
    hot = replayed("--slow-rank", f"1:{tmp_path / 'hot.csv'}")
    assert plain["ranks"]["1"]["compute_ns"] < hot["ranks"]["1"]["compute_ns"]
    assert hot["ranks"]["1"]["compute_ns"] <= 2 * plain["ranks"]["1"]["compute_ns"]
    assert hot["ranks"]["0"]["compute_ns"] == plain["ranks"]["0"]["compute_ns"]


def test_replay_with_ranks_that_fail(graphs):
    job = graphs / "job.prism"
    plain = json.loads(inside("replay", job, "--json").stdout)
    second = plain["iteration_time_ns"][0] + plain["iteration_time_ns"][1] // 2
    done = inside("replay", job, "--json", "--fail-ranks", f"1@{second}ns")
    assert (done.returncode, done.stderr) == (3, "")
    report = json.loads(done.stdout)
    assert list(report) == [*REPLAY_KEYS, "failure"]
    assert report["iteration_time_ns"] == plain["iteration_time_ns"][:1]
    failure = report["failure"]
    assert failure["stopped"] is True
    assert failure["failed"] == {"1": {"at_ns": second, "iterations": 1}}
    waiting = {rank: wait["failed"] for wait in failure["waits"] for rank in wait["ranks"]}
    assert waiting == {"0": [1], "2": [1]}
    assert all(set(wait) == WAIT_KEYS for wait in failure["waits"])
    shown = inside("replay", job, "--fail-ranks", f"1@{second}ns")
    assert shown.returncode == 3
    told = f"failed: rank 1 at {format_ns(second)}, after 1 iteration; 2 of 3 ranks wait for ever"
    assert told in shown.stdout
    assert " ns" not in shown.stdout.partition("\n\n")[0]
    early = inside("replay", job, "--fail-ranks", "1@0ns")
    assert early.returncode == 3
    assert "no iteration ended on all ranks" in early.stdout
    late = json.loads(inside("replay", job, "--json", "--fail-ranks", "0-2@1000s").stdout)
    assert late.pop("failure") == {"stopped": False, "failed": {}, "waits": []}
    assert late | {"wall_time_s": 0} == plain | {"wall_time_s": 0}


def test_replay_with_other_profiles(graphs):
    job = graphs / "job.prism"
    plain = json.loads(inside("replay", job, "--json").stdout)
    device = json.loads(inside("replay", job, "--json", "--profile", "a100").stdout)
    cluster = json.loads(inside("replay", job, "--json", "--cluster", "a100-8x").stdout)
    assert device["compute_ns"] != plain["compute_ns"]
    assert device["communication_ns"] == plain["communication_ns"]
    assert cluster["communication_ns"] != plain["communication_ns"]
    assert cluster["compute_ns"] == plain["compute_ns"]


def test_what_a_replay_says(graphs):
    lines = prism("replay", graphs / "job.prism", "--ranks", "1").stdout.splitlines()
    text = "\n".join(lines)
    assert any(line.startswith("rank classes") for line in lines)
    assert "ranks" in lines  # beside the classes, not instead of them
    assert "3 ranks in" in text
    assert "(the first holds the set-up)" in text
    assert "not compared with measurements: kernels of virtual:h100" in text
    assert lines[-1] == f"next: prism export perfetto {graphs}/job.prism -o {graphs}/job.pftrace"
