"""``prism spare`` as a user meets it: tables, JSON, plots, errors."""

import json
import math
import re
import subprocess
import sys

import pytest
from cli_runs import ENVIRONMENT, inside, prism
from test_spare_job import ddp

from prismcore.spare import placement
from prismcore.spare.life import LifeOptions, simulate

PLACE_KEYS = ["groups", "redundancy", "kind", "stacks", "max_shared"]
SIMULATE_KEYS = [
    "ttt_ratio",
    "availability",
    "mean_depth",
    "mean_compute",
    "failures",
    "endured_per_wipeout",
    "wipeouts",
    "restarts",
    "reorders",
    "seeds",
    "ci95",
    "wall_time_s",
    "finished",
    "policy",
    "model",
    "redundancy",
    "micro_batches",
    "checkpoint_steps",
    "time_split",
    "notes",
]
PLAN_KEYS = [
    "redundancy",
    "checkpoint_interval_s",
    "micro_batches",
    "expected_endured_failures",
    "mean_depth",
    "ttt_ratio",
    "checkpoint_steps",
    "predicted_ttt_ratio",
    "availability",
    "ci95",
    "finished",
    "ideal_s",
    "seeds",
    "model",
    "alternatives",
    "notes",
]
PLAN_ALTERNATIVE_KEYS = [
    "policy",
    "redundancy",
    "micro_batches",
    "checkpoint_steps",
    "checkpoint_interval_s",
    "expected_endured_failures",
    "mean_depth",
    "predicted_ttt_ratio",
    "ttt_ratio",
    "ci95",
    "availability",
    "finished",
    "saved_days",
    "saved_gpu_hours",
]
#: A plan in a second.
SMALL = ["--groups", "60", "--steps", "200", "--mtbf-s", "2000", "--seeds", "2", "--micro-batches", "2"]


def answer(*args):
    done = inside("spare", *args, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_place_json():
    report = answer("place", "--groups", "200", "--redundancy", "9")
    assert list(report) == PLACE_KEYS
    assert (report["groups"], report["redundancy"], report["kind"]) == (200, 9, "golomb")
    assert report["max_shared"] == 1
    assert report["stacks"] == placement.golomb(200, 9).stacks().tolist()


@pytest.mark.parametrize("kind", ["golomb", "spread", "random", "cyclic", "replication", "domains"])
def test_place_kinds(kind):
    racks = ["--rack-groups", "10"] if kind == "domains" else []
    report = answer("place", "--groups", "120", "--redundancy", "4", "--kind", kind, *racks)
    assert report["kind"] == kind
    stacks = report["stacks"]
    assert len(stacks) == 120
    assert sorted(t for stack in stacks for t in stack) == sorted(list(range(120)) * 4)
    shared = max(len(set(a) & set(b)) for i, a in enumerate(stacks) for b in stacks[:i])
    assert report["max_shared"] == shared
    if kind == "domains":
        for shard in range(120):
            racks = [g // 10 for g, stack in enumerate(stacks) if shard in stack]
            assert len(set(racks)) == len(racks) == 4
    text = inside("spare", "place", "--groups", "120", "--redundancy", "4", "--kind", kind, *racks_flag(kind))
    assert text.returncode == 0
    assert text.stdout.startswith(f"{kind} placement of 120 shard types\n")


def racks_flag(kind):
    return ["--rack-groups", "10"] if kind == "domains" else []


def test_place_random_by_seed():
    one, again, other = (
        answer("place", "--groups", "50", "--redundancy", "3", "--kind", "random", "--seed", seed)["stacks"]
        for seed in ("1", "1", "2")
    )
    assert one == again != other


def test_place_defaults_are_the_papers():
    report = answer("place")
    assert (report["groups"], report["redundancy"], report["kind"]) == (600, 10, "golomb")


def test_simulate_json():
    report = answer("simulate", "--groups", "200", "--redundancy", "9", "--steps", "300", "--seeds", "3")
    assert list(report) == SIMULATE_KEYS
    expected = simulate(LifeOptions(groups=200, redundancy=9, steps=300, seeds=3))
    same = set(SIMULATE_KEYS) - {"wall_time_s", "notes"}
    assert {k: report[k] for k in same} == {k: v for k, v in expected.to_dict().items() if k in same}
    assert set(report["ci95"]) == set(SIMULATE_KEYS[:9])
    assert report["notes"] == []
    assert sum(report["time_split"].values()) == pytest.approx(1)


def test_simulate_every_flag_arrives():
    flags = {
        "policy": "spare",
        "groups": 60,
        "redundancy": 4,
        "micro_batches": 2,
        "steps": 100,
        "layer_s": 3.5,
        "allreduce_s": 0.5,
        "restart_s": 100,
        "load_s": 5,
        "checkpoint_s": 7,
        "checkpoint_steps": 9,
        "jitter": 0.02,
        "mtbf_s": 40,
        "distribution": "exponential",
        "repair_s": 200,
        "rejoin_s": 2,
        "spares": 3,
        "swap_s": 1.5,
        "model": "corrected",
        "seeds": 3,
    }
    words = [w for k, v in flags.items() for w in (f"--{k.replace('_', '-')}", str(v))]
    report = answer("simulate", *words, "--rack-groups", "4", "--rack-share", "0.25", "--threads", "2")
    expected = simulate(LifeOptions(**flags, domain_groups=4, domain_share=0.25)).to_dict()
    assert report["ttt_ratio"] == expected["ttt_ratio"]
    assert report["time_split"] == expected["time_split"]
    assert report["failures"] == expected["failures"]


def test_simulate_defaults():
    report = answer("simulate", "--steps", "20", "--seeds", "1")
    assert (report["policy"], report["model"], report["redundancy"]) == ("spare", "published", 10)
    assert (report["micro_batches"], report["checkpoint_steps"]) == (1, 26)
    three = answer("simulate", "--steps", "20", "--seeds", "1", "--policy", "replication")
    assert three["redundancy"] == 3
    alone = answer("simulate", "--steps", "5", "--seeds", "1", "--policy", "checkpoint-only", "--gpus", "600")
    assert alone["redundancy"] == 1


def test_simulate_does_not_depend_on_threads():
    one, two = (
        answer("simulate", "--groups", "60", "--redundancy", "4", "--steps", "100", "--threads", n)
        for n in ("1", "2")
    )
    assert {**one, "wall_time_s": 0} == {**two, "wall_time_s": 0}


def test_a_training_that_does_not_end_says_so():
    flags = ["--steps", "100", "--seeds", "1", "--policy", "checkpoint-only"]
    assert answer("simulate", *flags)["finished"] is False
    text = inside("spare", "simulate", *flags).stdout
    assert "does not end: 0 of 100 steps in 8.1 days, " in text


def test_the_failure_rate_follows_the_gpus():
    flags = ["--steps", "50", "--seeds", "1", "--groups", "60", "--redundancy", "3"]
    scaled = answer("simulate", *flags, "--gpus", "60000")
    assert len(scaled["notes"]) == 1
    assert "60,000 GPUs fail every 3,000 s" in scaled["notes"][0]
    given = answer("simulate", *flags, "--gpus", "60000", "--mtbf-s", "3000")
    assert given["notes"] == []
    assert given["ttt_ratio"] == scaled["ttt_ratio"]


def test_a_trace_of_failures(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("group,seconds\n3,100.5\n7,250\n")
    flags = ["--steps", "50", "--seeds", "1", "--groups", "60", "--redundancy", "3", "--trace", str(trace)]
    report = answer("simulate", *flags)
    assert report["failures"] == 2
    assert "2 failures, one in 125.0 s" in report["notes"][0]


def test_plan_json():
    report = answer("plan", *SMALL)
    assert list(report) == PLAN_KEYS
    assert all(list(a) == PLAN_ALTERNATIVE_KEYS for a in report["alternatives"])
    ended = [a for a in report["alternatives"] if a["finished"]]
    assert {a["policy"] for a in report["alternatives"]} == {"spare", "replication", "checkpoint-only"}
    assert all(1.001 * a["ttt_ratio"] >= report["ttt_ratio"] for a in ended if a["policy"] == "spare")
    for a in ended:
        days = (a["ttt_ratio"] - report["ttt_ratio"]) * report["ideal_s"] / 86_400
        assert a["saved_days"] == pytest.approx(days)
        assert a["saved_gpu_hours"] == pytest.approx(days * 24 * 600_000)
    assert report["ideal_s"] == 200 * 64.6
    assert report["micro_batches"] in (1, 2)
    assert report["checkpoint_interval_s"] > report["checkpoint_steps"] * 64.6


def test_plan_is_what_simulate_says():
    plan = answer("plan", *SMALL)
    chosen = ["--redundancy", str(plan["redundancy"]), "--micro-batches", str(plan["micro_batches"])]
    chosen += ["--checkpoint-steps", str(plan["checkpoint_steps"])]
    life = answer("simulate", *SMALL[:-2], *chosen)
    assert life["ttt_ratio"] == plan["ttt_ratio"]
    assert life["ci95"]["ttt_ratio"] == plan["ci95"]
    assert life["mean_depth"] == plan["mean_depth"]


def test_plan_tables():
    done = inside("spare", "plan", *SMALL)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert all(line == line.rstrip() for line in lines)
    start = lines.index("ways to run this fleet, simulated, best first")
    table = lines[start : lines.index("", start)]
    assert all(len(line) <= 80 for line in table)
    for words in (
        "saves against replication r = ",
        "saves against checkpoints only",
        "No fleet was measured.",
    ):
        assert words in done.stdout


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_plots(tmp_path, suffix):
    signs = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    out = tmp_path / f"plan.{suffix}"
    done = inside("spare", "plan", *SMALL, "--plot", out)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"drawn into {out}" in done.stdout
    first = out.read_bytes()
    assert first.startswith(signs[suffix])
    inside("spare", "plan", *SMALL, "--plot", out)
    assert out.read_bytes() == first
    assert [p.name for p in tmp_path.iterdir()] == [out.name]
    if suffix == "svg":
        text = first.decode()  # drawn as paths, with the words as comments
        for words in ("600,000 GPUs in 60 groups, a failure every 33.3 min", "replication", "chosen"):
            assert f"<!-- {words} -->" in text


def test_plot_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = inside("spare", "plan", *SMALL, "--plot", tmp_path / "plan.png")
    assert done.returncode == 1
    assert "pip install 'prismcore[plot]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_step_times_of_a_job(tmp_path):
    job = tmp_path / "job.prism"
    ddp(forward=1_000_000_000, bucket=400_000_000, update=700_000_000).save(job)  # shard 6 s, once 1.1 s
    flags = ["--steps", "50", "--seeds", "1", "--groups", "60", "--redundancy", "3"]
    from_job = answer("simulate", *flags, "--job", job)
    given = answer("simulate", *flags, "--layer-s", "6", "--allreduce-s", "1.1")
    assert from_job["ttt_ratio"] == given["ttt_ratio"]
    note = from_job["notes"][0]
    assert f"{job}: a step of 7.100 s is a shard of 6.000 s and 1.100 s once a step" in note
    assert "default_pg of torch DDP" in note
    assert "the job has 3 groups, not 60" in note
    over = answer("simulate", *flags, "--job", job, "--allreduce-s", "9")
    assert (
        over["ttt_ratio"] == answer("simulate", *flags, "--layer-s", "6", "--allreduce-s", "9")["ttt_ratio"]
    )
    assert "--allreduce-s replaces the latter" in over["notes"][0]


def test_a_job_without_step_times(tmp_path):
    job = tmp_path / "job.prism"
    ddp(name="mine:0").save(job)
    done = inside("spare", "plan", "--job", job)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"prism: error: {job}: no data-parallel communicator among mine")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["place", "--groups", "5", "--redundancy", "9"], "redundancy 9 and groups 5 found"),
        (["place", "--groups", "40", "--redundancy", "9"], "redundancy 9 on 40 groups, expected 89 groups"),
        (
            ["place", "--kind", "replication", "--groups", "10", "--redundancy", "3"],
            "redundancy 3 on 10 groups",
        ),
        (["place", "--kind", "domains"], "--kind domains needs --rack-groups"),
        (["place", "--rack-groups", "4"], "--rack-groups found with --kind golomb"),
        (["place", "--groups", "0"], "--groups: found '0', expected a whole number from 1"),
        (["place", "--seed", "-1"], "--seed: found '-1'"),
        (["simulate", "--redundancy", "700"], "redundancy 700 and groups 600 found"),
        (["simulate", "--groups", "100", "--redundancy", "12"], "redundancy 12 on 100 groups, expected 171"),
        (
            ["simulate", "--restart-s", "-1"],
            "--restart-s: found '-1', expected seconds without a unit, from 0",
        ),
        (["simulate", "--mtbf-s", "nan"], "--mtbf-s: found 'nan'"),
        (["simulate", "--layer-s", "inf"], "--layer-s: found 'inf'"),
        (["simulate", "--mtbf-s", "0"], "--mtbf-s: found '0', expected seconds without a unit, above 0"),
        (["simulate", "--checkpoint-s", "5min"], "--checkpoint-s: found '5min'"),
        (["simulate", "--distribution", "weibull:0"], "--distribution: found 'weibull:0'"),
        (["simulate", "--distribution", "normal"], "--distribution: found 'normal'"),
        (["simulate", "--gpus", "601"], "GPUs 601 and groups 600 found"),
        (["simulate", "--policy", "ring"], "invalid choice: 'ring'"),
        (["simulate", "--policy", "replication", "--micro-batches", "8"], "--micro-batches 8 found with"),
        (["simulate", "--policy", "checkpoint-only", "--redundancy", "3"], "--redundancy 3 found with"),
        (["simulate", "--jitter", "2"], "--jitter: found '2', expected a number from 0 to 1"),
        (["simulate", "--steps", "1000000000"], "expected less than 36 years"),
        (["simulate", "--seeds", "0"], "--seeds: found '0'"),
        (["simulate", "--job", "x.prism", "--layer-s", "3"], "--layer-s and --job found"),
        (["simulate", "--trace", "x.csv", "--mtbf-s", "3"], "--trace found with --mtbf-s"),
        (["plan", "--groups", "2"], "groups 2 found, expected at least 3"),
        (["plan", "--redundancy", "21"], "redundancy 21 and groups 600 found"),
        (["plan", "--plot", "plan.gif"], "plan.gif: found '.gif', expected .png, .svg or .pdf"),
        (["plan", "--plot", "plan"], "plan: found no suffix, expected .png, .svg or .pdf"),
        (["plan", "--policy", "spare"], "unrecognized arguments: --policy"),
        (["serve"], "invalid choice: 'serve'"),
        ([], "the following arguments are required: COMMAND"),
    ],
)
def test_usage_errors_are_one_line(args, words):
    done = inside("spare", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("prism: error: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["simulate", "--trace", "absent.csv"], "absent.csv cannot be read"),
        (["simulate", "--trace", "bad.csv"], "bad.csv, row 2: '1,soon' found"),
        (["simulate", "--job", "absent.prism"], "absent.prism"),
        (["plan", "--plot", "no/such/plan.png"], "no/such"),
    ],
)
def test_user_errors_are_one_line(tmp_path, monkeypatch, args, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.csv").write_text("0,1\n1,soon\n")
    done = inside("spare", *args)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["bad.csv"]


@pytest.mark.parametrize(
    ("args", "heavy"),
    [
        (["--help"], "torch numpy rich matplotlib scipy prismcore._core"),
        (["plan", "--help"], "torch numpy rich matplotlib scipy prismcore._core"),
        (["place"], "torch matplotlib scipy"),
        (["simulate", "--steps", "10"], "torch matplotlib scipy"),
        (["plan", *SMALL], "torch matplotlib scipy"),
        (["plan", *SMALL, "--plot", "plan.svg"], "torch scipy"),
    ],
)
def test_what_is_not_imported(tmp_path, args, heavy):
    program = (
        "import sys\nfrom prismcore.cli.main import main\n"
        f"code = main({['spare', *args]!r})\n"
        f"found = {set(heavy.split())!r} & set(sys.modules)\n"
        "sys.exit(f'imported {found}' if found else code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=ENVIRONMENT,
    )
    assert done.returncode == 0, done.stderr


def test_in_a_process_of_its_own():
    done = prism("spare", "simulate", "--groups", "60", "--redundancy", "4", "--steps", "50")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert done.stdout.startswith("fleet\n")


def test_interrupts_are_heard_between_rounds(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("prismcore.spare.planner.simulate", interrupt)
    done = inside("spare", "simulate")
    assert (done.returncode, done.stderr) == (1, "prism: error: interrupted\n")


@pytest.mark.parametrize(
    "flags",
    [
        ["--groups", "1", "--redundancy", "1"],  # nothing to replicate
        # Every failure takes all groups, and comes before they are up again.
        [
            "--groups",
            "7",
            "--mtbf-s",
            "60",
            "--rack-groups",
            "7",
            "--rack-share",
            "1",
            "--model",
            "corrected",
        ],
        ["--groups", "60", "--distribution", "weibull:0.1", "--load-s", "1000000", "--redundancy", "3"],
    ],
)
def test_fleets_that_nothing_helps(tmp_path, flags):
    flags = ["plan", *flags, "--steps", "2", "--seeds", "1", "--micro-batches", "2"]
    report = answer(*flags)
    assert report["finished"] == (report["ttt_ratio"] is not None)
    done = inside("spare", *flags, "--plot", tmp_path / "x.png")
    assert (done.returncode, done.stderr) == (0, "")
    assert "time to train" in done.stdout
    assert not re.search(r"\b(nan|inf)\b", done.stdout)


def test_ratios_are_finite_or_none():
    report = answer("plan", *SMALL, "--redundancy", "2")
    for a in report["alternatives"]:
        assert a["finished"] == (a["ttt_ratio"] is not None)
        assert a["ttt_ratio"] is None or math.isfinite(a["ttt_ratio"])


@pytest.mark.parametrize("command", ["simulate", "plan"])
def test_interrupts_are_heard_inside_a_round(command):
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, "spare", command, "--steps", "9000000", "--seeds", "1"],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, error = process.communicate(timeout=240)
    finally:
        process.kill()
    assert (process.returncode, out, error) == (1, "", "prism: error: interrupted\n")


INTERRUPTED = """
import os, signal, sys, threading
import prismcore.spare.planner as planner
from prismcore.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
simulate = planner.simulate
def interrupted(options):
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    return simulate(options)
planner.simulate = interrupted
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("groups", [1, 2, 3, 5, 6, 20])
@pytest.mark.parametrize("command", [("place",), ("simulate", "--steps", "3", "--seeds", "1")])
def test_defaults_fit_few_groups(command, groups):
    assert inside("spare", *command, "--groups", str(groups)).returncode == 0
