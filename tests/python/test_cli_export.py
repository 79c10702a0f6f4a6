"""``prism export``: folders and files that appear whole or not at all, and what is said of them."""

import errno
import json
import os
import pickle

import cli_contract
import jobs
import pytest
from cli_runs import inside

from prismcore.cli.export_ranks import MOST_FILES
from prismcore.cli.written import whole_folder
from prismcore.errors import PrismError
from prismcore.graph import GraphBuilder

FOLDERS = ("kineto", "chakra", "flight-recorder")
FIRST = {"kineto": "rank0_trace.json.gz", "chakra": "chakra.0.et", "flight-recorder": "rank_0"}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    jobs.pipeline().save(folder / "job.prism")
    jobs.deadlock().save(folder / "deadlock.prism")
    jobs.mismatch().save(folder / "mismatch.prism")
    wide = GraphBuilder(world_size=600)
    for r in range(600):
        wide.rank(r).kernel(f"k{r % 2}", duration_ns=5, host_ns=1)
    wide.finish().save(folder / "wide.prism")
    return folder


@pytest.mark.parametrize(
    ("format", "keys"),
    [
        ("kineto", cli_contract.EXPORT_KINETO_KEYS),
        ("chakra", cli_contract.EXPORT_CHAKRA_KEYS),
        ("flight-recorder", cli_contract.EXPORT_FLIGHT_RECORDER_KEYS),
    ],
)
def test_a_folder_with_a_file_a_rank(graphs, tmp_path, format, keys):
    out = tmp_path / "out"
    done = inside("export", format, graphs / "job.prism", "-o", out, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert list(report) == keys
    assert report["ranks"] == [0, 1, 2]
    files = {p.name: p for p in out.iterdir()}
    beside = {"comm_groups.json"} if format == "chakra" else set()
    assert set(files) == beside | {FIRST[format].replace("0", r, 1) for r in "012"}
    assert report["file_bytes"] == sum(p.stat().st_size for name, p in files.items() if name not in beside)
    assert out.stat().st_mode & 0o777 == 0o777 & ~umask()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]

    empty = tmp_path / "empty"
    empty.mkdir()
    done = inside("export", format, graphs / "job.prism", "-o", empty, "--ranks", "0-2")
    assert done.returncode == 0
    assert "3 ranks (0-2)" in done.stdout
    again = {p.name: p.read_bytes() for p in empty.iterdir()}
    assert again == {name: p.read_bytes() for name, p in files.items()}  # the same graph, the same bytes

    done = inside("export", format, graphs / "job.prism", "-o", out)
    assert (done.returncode, done.stdout) == (1, "")
    assert "holds files already" in done.stderr


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("format", FOLDERS)
def test_of_a_large_graph_ranks_are_chosen(graphs, tmp_path, format):
    out = tmp_path / "out"
    done = inside("export", format, graphs / "wide.prism", "-o", out)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"600 ranks found, at most {MOST_FILES} are written unasked" in done.stderr
    assert list(tmp_path.iterdir()) == []
    for choice, expected in (("classes", [0, 1]), ("7,598-599", [7, 598, 599])):
        done = inside("export", format, graphs / "wide.prism", "-o", out, "--ranks", choice, "--json")
        assert json.loads(done.stdout)["ranks"] == expected
        for path in out.iterdir():
            path.unlink()
    done = inside("export", format, graphs / "wide.prism", "-o", out, "--ranks", "all", "--json")
    assert len(json.loads(done.stdout)["ranks"]) == 600


@pytest.mark.parametrize("format", FOLDERS)
@pytest.mark.parametrize(
    ("where", "words"),
    [("file", "is a file"), ("no/such/out", "mkdir -p"), ("out", "ranks 3-4 found")],
)
def test_what_cannot_be_written_leaves_nothing(graphs, tmp_path, monkeypatch, *, format, where, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    done = inside("export", format, graphs / "job.prism", "-o", where, "--ranks", "0,3-4")
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_folder_that_is_not_complete_is_removed(tmp_path, error):
    def fail():
        with whole_folder(tmp_path / "out") as folder:
            (folder / "part").write_text("half")
            raise error

    with pytest.raises(PrismError if isinstance(error, OSError) else KeyboardInterrupt):
        fail()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "missing"), [("deadlock", [1]), ("mismatch", [])])
def test_the_flight_recorder_of_a_job_that_cannot_run(graphs, tmp_path, name, missing):
    out = tmp_path / "out"
    done = inside("export", "flight-recorder", graphs / f"{name}.prism", "-o", out, "--json")
    assert (done.returncode, done.stderr) == (3, "")
    report = json.loads(done.stdout)
    assert list(report) == [*cli_contract.EXPORT_FLIGHT_RECORDER_KEYS, "failure"]
    assert set(report["failure"]["waits"][0]) == cli_contract.WAIT_KEYS
    assert report["failure"]["stopped"]
    assert report["failure"]["waits"][0]["missing"] == missing
    assert report["unfinished"] == report["entries"] == 2
    (entry,) = pickle.loads((out / "rank_0").read_bytes())["entries"]
    assert entry["state"] == "started"
    done = inside("export", "flight-recorder", graphs / f"{name}.prism", "-o", tmp_path / "words")
    assert "stuck; 2 of 2 ranks wait for ever" in done.stdout
    assert ("members disagree" in done.stdout) == (name == "mismatch")
    assert "2 of them not completed" in done.stdout
    for format in ("kineto", "memory-snapshot"):
        done = inside("export", format, graphs / f"{name}.prism", "-o", tmp_path / "no")
        assert (done.returncode, done.stdout) == (3, "")
    assert {p.name for p in tmp_path.iterdir()} == {"out", "words"}


def test_a_failure_is_dumped_too(graphs, tmp_path):
    out = tmp_path / "out"
    done = inside(
        "export", "flight-recorder", graphs / "job.prism", "-o", out, "--fail-ranks", "1@5ms", "--json"
    )
    assert done.returncode == 3
    report = json.loads(done.stdout)
    assert list(report["failure"]["failed"]) == ["1"]
    assert report["unfinished"] > 0


def test_a_memory_snapshot(graphs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = inside("export", "memory-snapshot", graphs / "job.prism", "--rank", "1", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert list(report) == cli_contract.EXPORT_MEMORY_KEYS
    assert (report["output"], report["rank"], report["peak_allocated_bytes"]) == (
        "job_rank1.pickle",
        1,
        4 << 20,
    )
    assert report["file_bytes"] == (tmp_path / "job_rank1.pickle").stat().st_size
    done = inside("export", "memory-snapshot", graphs / "job.prism", "-o", "own.pickle")
    assert "own.pickle: rank 0; 12 allocations" in done.stdout
    for flags, words in (
        (("--rank", "3"), "--rank: rank 3 found"),
        (("-o", "no/such.pickle"), "its folder does not exist"),
        (("-o", "."), "is a folder"),
    ):
        done = inside("export", "memory-snapshot", graphs / "job.prism", *flags)
        assert done.returncode == 1
        assert words in done.stderr
    done = inside("export", "memory-snapshot", graphs / "wide.prism")
    assert "rank 0 allocates nothing" in done.stderr
    assert {p.name for p in tmp_path.iterdir()} == {"job_rank1.pickle", "own.pickle"}
