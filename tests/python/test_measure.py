"""``prism profile`` on the virtual GPU: the device that was measured comes back, whatever is extended."""

import json
import signal
import subprocess
import sys
import time

import cli_contract
import numpy as np
import pytest

from prismcore.calibrate import calibrate
from prismcore.calibrate.samples import Spread
from prismcore.cli.main import main
from prismcore.collect import CollectOptions, collect
from prismcore.comm import collective_cost
from prismcore.errors import MeasureError
from prismcore.graph import Kernel
from prismcore.measure import PRESETS, LayerShape, MeasureOptions, parse_shape
from prismcore.measure.measure import _collectives as collectives_of
from prismcore.measure.samples import samples_of_report
from prismcore.profiles.cluster import load_cluster
from prismcore.profiles.device import load_device
from prismcore.replay import replay
from prismcore.report.table_use import table_use

H100 = {
    "name": "NVIDIA H100 80GB HBM3",
    "compute_capability": [9, 0],
    "sms": 132,
    "memory_bytes": 84_986_691_584,
}
SHAPE = "hidden=1024,heads=16,sequence=512,vocab=4096"

# A device that no profile ships for: all that prism profile measures is another than the base's.
DEVICE = """
base = "h100"
pcie_bandwidth = 40e9
[efficiency]
gemm = 0.5
elementwise = 0.6
reduction = 0.4
normalization = 0.35
softmax = 0.4
copy = 0.5
optimizer = 0.5
[host]
launch_ns = 4000
copy_ns = 5000
event_ns = 700
sync_ns = 2000
query_ns = 500
communication_ns = 9000
allocate_ns = 300
reserve_ns = 90000
"""

# One layer of that shape, and a step of an optimizer.
JOB = """
import torch
import torch.nn.functional as F

torch.distributed.init_process_group("nccl")
h, tokens = 1024, 512
fc1, fc2 = torch.nn.Linear(h, 4 * h, bias=False), torch.nn.Linear(4 * h, h, bias=False)
model = torch.nn.Sequential(torch.nn.LayerNorm(h), fc1, torch.nn.GELU(), fc2).cuda().bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
x = torch.zeros(tokens, 1, h, device="cuda", dtype=torch.bfloat16)
for _ in range(3):
    for _ in range(4):
        labels = torch.zeros(tokens, dtype=torch.int64, device="cuda")
        F.cross_entropy(model(x).float().view(tokens, h), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    """Folder of a profile, and what the command printed."""
    folder = tmp_path_factory.mktemp("profile")
    (folder / "device.toml").write_text(DEVICE)
    command = [sys.executable, "-m", "prismcore", "profile", "-o", str(folder / "own.toml"), "--json"]
    command += ["--device", str(folder / "device.toml"), "--base", "h100", "--shape", SHAPE]
    done = subprocess.run(
        [*command, "--repeats", "3"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


@pytest.mark.torch
def test_a_job_takes_by_the_profile_what_it_takes_on_the_device(profiled):
    folder, _ = profiled
    (folder / "job.py").write_text(JOB)
    job = collect(CollectOptions(command=[str(folder / "job.py")], world_size=1)).graph
    device, own, base = (load_device(name) for name in (folder / "device.toml", folder / "own.toml", "h100"))
    times = [replay(job, device=one).median_iteration_time_ns for one in (device, own, base)]
    assert times[1] == pytest.approx(times[0], rel=0.01)
    assert abs(times[2] / times[0] - 1) > 0.5  # the base knows nothing of it
    use = table_use(job, own)
    assert use.found >= use.kernels / 2, use


@pytest.mark.torch
def test_figures_of_the_device_come_back(profiled):
    folder, told = profiled
    device, own = load_device(folder / "device.toml"), load_device(folder / "own.toml")
    assert own.host == device.host
    assert own.pcie_bandwidth == pytest.approx(device.pcie_bandwidth, rel=1e-3)
    for family in ("gemm", "elementwise", "softmax", "normalization", "optimizer"):
        assert getattr(own.efficiency, family) == pytest.approx(getattr(device.efficiency, family), rel=0.02)
    assert own.fitted_to is not None
    assert told["torch"] in own.fitted_to
    assert set(told) == {*cli_contract.CALIBRATE_KEYS, *cli_contract.PROFILE_KEYS}
    assert told["dropped"] == []


@pytest.mark.torch
def test_events_and_kernels_tell_the_same(profiled):
    _, told = profiled
    products = [point for point in told["points"] if point["kernel_ns"] is not None]
    assert len(products) == 18  # six layers, each forward and two gradients
    for point in products:
        assert point["covered"], point
        assert point["median_ns"] == pytest.approx(point["kernel_ns"], rel=0.01), point
    families = {"gemm", "attention", "elementwise", "reduction", "normalization", "softmax", "optimizer"}
    assert families < {point["family"] for point in told["points"]}


@pytest.mark.torch
def test_collectives_of_several_gpus_come_back(tmp_path):
    """Of a cluster with other links than the one that is extended."""
    (tmp_path / "links.toml").write_text(
        'base = "h100-8x"\n[one_node.calibration.bandwidth_efficiency]\nsimple = 0.7\n'
    )
    options = MeasureOptions(device="virtual:h100", cluster=tmp_path / "links.toml", gpus=8, repeats=3)
    found = collectives_of(options, {"device": {}, "dropped": []}, tmp_path / "report.json")
    told = report([], collectives=found, device=H100)
    samples = samples_of_report(told, None)
    samples.kernels = {Kernel(name="one"): np.full(3, 1000)}
    own = calibrate(samples, base="h100", cluster="h100-8x").cluster
    for kind in ("all_reduce", "all_gather", "reduce_scatter"):
        (key,) = (k for k in samples.collectives if k.kind.name.lower() == kind and k.bytes == 1 << 28)
        measured = int(np.median(samples.collectives[key]))
        cost, plain = (
            collective_cost(kind, key.bytes, key.members, cluster=c.to_core()).duration_ns
            for c in (own, load_cluster("h100-8x"))
        )
        assert cost == pytest.approx(measured, rel=0.05)
        assert plain < 0.85 * measured


@pytest.mark.torch
def test_what_there_is_no_time_for_is_named(tmp_path, capfd):
    out = tmp_path / "short.toml"
    command = ["profile", "-o", str(out), "--device", "virtual:a100", "--minutes", "0.02"]
    assert main([*command, "--shape", "70b-tp8"]) == 0
    said = capfd.readouterr()
    assert "no time was left for" in said.err + said.out
    assert load_device(out).host == load_device("a100").host  # first, whatever time there is


def test_without_a_gpu_one_line_says_what_to_do(tmp_path, capfd):
    assert main(["profile", "-o", str(tmp_path / "own.toml")]) == 1
    said = capfd.readouterr().err.strip()
    if "no torch" not in said:
        assert said.startswith("prism: error: no CUDA device found")
        assert "--device virtual:NAME" in said
    assert "\n" not in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--device", "cuda:x"], 1, "expected cuda, cuda:N, virtual:NAME or a file"),
        (["--device", "virtual:h900"], 1, "h900"),
        (["--gpus", "0"], 2, "expected"),
        (["--minutes", "0"], 2, "expected minutes from"),
        (["--shape", "9b"], 2, "expected one of 8b"),
        (["--shape", "hidden=100,heads=3"], 2, "expected a multiple"),
        (["--repeats", "2"], 2, "expected"),
    ],
)
def test_what_cannot_be_asked(tmp_path, capfd, flags, code, words):
    assert main(["profile", "-o", str(tmp_path / "own.toml"), *flags]) == code
    said = capfd.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_an_output_that_cannot_be_written_is_told_before_the_work(tmp_path, capfd):
    (tmp_path / "own.kernels.csv").mkdir()
    assert main(["profile", "-o", str(tmp_path / "own.toml"), "--device", "virtual:h100"]) == 1
    assert "own.kernels.csv: is a folder" in capfd.readouterr().err


@pytest.mark.torch
def test_ctrl_c_leaves_nothing(tmp_path):
    command = [sys.executable, "-m", "prismcore", "profile", "-o", str(tmp_path / "own.toml")]
    running = subprocess.Popen([*command, "--device", "virtual:h100"], stderr=subprocess.PIPE, text=True)
    time.sleep(6)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 1
    assert "interrupted" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", list(PRESETS))
def test_shapes_are_read_as_they_are_written(name):
    assert parse_shape(PRESETS[name].text()) == PRESETS[name] == parse_shape(name)


def test_what_a_shape_leaves_out():
    assert parse_shape("hidden=512,heads=8") == LayerShape(hidden=512, ffn=2048, heads=8, kv_heads=8)


@pytest.mark.parametrize("device", ["cuda:", "cuda:-1", "cuda:1.5"])
def test_devices_that_cannot_be(device):
    with pytest.raises(MeasureError, match="expected cuda"):
        MeasureOptions(device=device)


def report(points, **more):
    """What the program leaves where the profiler tells no kernel."""
    device = {"name": "NVIDIA A100", "compute_capability": [8, 0], "sms": 108, "memory_bytes": 80 << 30}
    shapes = [LayerShape().text()]
    return {
        "torch": "2",
        "device": device,
        "copies": [],
        "host": {},
        "traces": [],
        "shapes": shapes,
        "points": points,
    } | more


def test_without_a_profiler_products_are_timed_by_events():
    point = {"shape": 0, "durations_ns": [5, 7, 6], "covered": True, "product": [64, 32, 16, 1]}
    other = {**point, "product": None}
    late = {**point, "covered": False, "product": [1, 2, 3, 1]}
    samples = samples_of_report(report([point, other, late]), None)
    ((kernel, durations),) = samples.kernels.items()
    assert (kernel.gemm.m, kernel.gemm.n, kernel.gemm.k, kernel.gemm.batch) == (64, 32, 16, 1)
    assert Spread.of(durations).median_ns == 6
    assert "products alone, timed by events" in samples.warnings[0]
