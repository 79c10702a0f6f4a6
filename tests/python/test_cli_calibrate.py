"""``prism calibrate``: what it writes, prints and refuses."""

import json

import cli_contract
import pytest
from calibrate_jobs import ADD, SOFTMAX, Job, job_of

from prismcore.cli.main import main
from prismcore.profiles.cluster import load_cluster
from prismcore.profiles.device import load_device


def run(capsys, *args):
    code = main(["calibrate", *map(str, args)])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_the_command(tmp_path, capsys):
    folder = job_of(load_device("a100"), load_cluster("a100-8x")).write(tmp_path / "traces")
    code, out, _ = run(capsys, folder, "-o", tmp_path / "own.toml", "--json")
    assert code == 0
    report = json.loads(out)
    assert list(report) == cli_contract.CALIBRATE_KEYS
    assert report["files"] == [
        str(tmp_path / name) for name in ("own.toml", "own.kernels.csv", "own.cluster.toml")
    ]
    assert report["matched"]["table"] == pytest.approx(1)
    assert {row["name"] for row in report["kernels"]} >= {"product", ADD, SOFTMAX, "triton_poi_fused_7"}
    code, out, _ = run(capsys, folder, "-o", tmp_path / "own.toml")
    assert code == 0
    assert "next: prism replay JOB.prism --profile" in out
    # a calibrated profile is a base like any other, and keeps its rows
    code, out, _ = run(capsys, folder, "-o", tmp_path / "two.toml", "--base", tmp_path / "own.toml", "--json")
    assert (code, json.loads(out)["base_cluster"]) == (0, None)
    assert 'base = "own.toml"' in (tmp_path / "two.toml").read_text()
    assert load_device(tmp_path / "two.toml").rows == load_device(tmp_path / "own.toml").rows


PATHS = {"traces", "own.csv", "own.toml", "nowhere.json", "empty", "cut", "bare.toml"}


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("traces", "-o", "own.csv"), 2, "expected a name that ends in .toml"),
        (("nowhere.json", "-o", "own.toml"), 1, "nowhere.json"),
        (("empty", "-o", "own.toml"), 1, "no *.json or *.json.gz found"),
        (("traces", "-o", "own.toml", "--base", "h100"), 1, "expected those of NVIDIA H100"),
        (("traces", "-o", "own.toml", "--base", "x100"), 1, "expected one of a100"),
        (("traces", "-o", "own.toml", "--cluster", "x"), 1, "expected one of a100-8x"),
        (("traces", "-o", "own.toml", "--least-samples", "99"), 1, "no kernel with at least 99 samples"),
        (("traces", "-o", "own.toml", "--least-samples", "0"), 2, "whole number"),
        (("cut", "-o", "own.toml"), 1, "rank0_trace.json"),
        (("bare.toml", "-o", "bare.toml"), 1, "is also what would be read"),
    ],
)
def test_what_the_command_refuses(tmp_path, capsys, args, code, words):
    args = [str(tmp_path / a) if a in PATHS else a for a in args]
    job = Job(device=load_device("a100"), cluster=load_cluster("a100-8x"), late_ns=[0])
    for _ in range(3):
        job.kernel(ADD, 100_000)
    job.write(tmp_path / "traces")
    job.write(tmp_path / "cut", damage=lambda text: text[: len(text) // 2])
    (tmp_path / "empty").mkdir()
    (tmp_path / "bare.toml").write_text("")
    found, out, err = run(capsys, *args)
    assert (found, out) == (code, "")
    assert words in err
    assert err.count("\n") == 1
    assert not list(tmp_path.glob("own*"))
