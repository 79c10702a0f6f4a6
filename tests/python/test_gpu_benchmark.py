"""benchmarks/gpu: a dry run to its end; rows that fail, hang or have no time leave the others alone."""

import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GPU = ROOT / "benchmarks" / "gpu"


@pytest.fixture
def benchmark(monkeypatch):
    """A module of the folder by name, which finds the others beside it and none of them afterwards."""
    monkeypatch.syspath_prepend(str(GPU))
    yield importlib.import_module
    for name in ("rows", "parts", "kernels", "run"):
        sys.modules.pop(name, None)


@pytest.mark.torch
def test_a_dry_run_comes_to_its_end(tmp_path):
    out = tmp_path / "gpu.json"
    environment = {**os.environ, "PYTHON": sys.executable, "PRISM_GPU_OWN_GPT": "1"}
    done = subprocess.run(
        [str(GPU / "run.sh"), "--dry", "--out", str(out), "--worlds", "4"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=470,
        check=False,
    )
    told = json.loads(out.read_text())
    rows = {row["name"]: row for row in told["rows"]}
    assert {n: r["status"] for n, r in rows.items() if r["status"].startswith(("failed", "not run"))} == {}
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in rows)
    assert len(rows) == 16
    # the virtual device that stands for the real one is the one that was measured
    assert rows["peak allocated bytes"]["figures"]["equal"]
    kernels = rows["kernel names and counts"]["figures"]
    assert kernels["names_of_other_count"] == {}
    assert kernels["names_virtual_alone"] == kernels["names_real_alone"] == []
    assert rows["iteration time"]["figures"]["ratio"] == pytest.approx(1, abs=0.02)
    assert rows["emulate 4 ranks, 2 run"]["figures"]["ratio"] == 1
    for part in ("pacing kernel", "SM occupancy", "recording overhead"):
        assert rows[part]["status"].startswith("not built: ")


def test_a_row_that_fails_leaves_the_next_alone(tmp_path, capsys, benchmark):
    rows = benchmark("rows")
    runner = rows.Runner(time.monotonic() + 60)
    report = rows.Report(tmp_path / "out.json", {"benchmark": "gpu"})
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    broken = [sys.executable, "-c", "raise SystemExit('no such device')"]
    begin = time.monotonic()
    report.row("hangs", runner, 3, lambda: {"out": runner.run(sleep)})
    assert time.monotonic() - begin < 20
    report.row("ends", runner, 20, lambda: {"out": runner.run(broken)})
    report.row("is wrong", runner, 20, lambda: {}["figure"])
    assert len(json.loads((tmp_path / "out.json").read_text())["rows"]) == 3  # nothing is lost by a cut
    report.row("goes", runner, 20, lambda: {"figure": 1})
    runner.row_deadline = 0
    report.row("is late", rows.Runner(time.monotonic()), 20, lambda: {"figure": 1})
    statuses = [row["status"] for row in json.loads((tmp_path / "out.json").read_text())["rows"]]
    assert statuses[0].startswith("failed: over its time")
    assert statuses[1].endswith("no such device")
    assert statuses[2] == "failed: KeyError: 'figure'"
    assert statuses[3:] == ["ok", "not run: no time left"]
    assert capsys.readouterr().out.count("\n") == 5


def test_kernels_are_compared_by_what_they_are(benchmark):
    compare = benchmark("kernels").compare
    virtual = {"_ZN2at6native4fillIfEEvT_": 3, "gemm": 4, "_Z5extrav": 1, "_ZN2at3sumEv": 2}
    real = {
        "void at::native::fill<float>(float)": 3,
        "nvjet_tst_128x256": 3,
        "void cutlass::Kernel2<x>": 1,
        "at::sum()": 5,
        "Memcpy HtoD": 9,
        "ncclDevKernel_AllReduce": 1,
    }
    found = compare(virtual, real)
    assert (found["launches_virtual"], found["launches_real"]) == (10, 12)
    assert found["names_alike"] == 2  # fill, and products
    assert found["names_of_other_count"] == {"at::sum()": [2, 5]}
    assert found["names_virtual_alone"] == ["extra()"]
    assert found["names_real_alone"] == []
