"""Where files are written: never over what is read, never over what is no file, through links, whole."""

import errno
import json
import os
import resource
import tarfile
import tempfile
from contextlib import contextmanager
from pathlib import Path

import jobs
import pytest

from prismcore import outputs
from prismcore.calibrate.targets import check_targets
from prismcore.cli.main import main
from prismcore.cli.output import escaped
from prismcore.cli.written import whole_file, whole_folder
from prismcore.errors import GraphError, PrismError, ProfileError
from prismcore.outputs import check_file, file_target, write_whole

KERNEL = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "ts": 3, "dur": 5, "name": "k"}
LAUNCH = {"ph": "X", "cat": "cuda_runtime", "pid": 1, "tid": 1, "ts": 1, "dur": 1, "name": "cudaLaunchKernel"}


def trace(path, name="k"):
    events = [LAUNCH | {"args": {"correlation": 1}}]
    events.append(KERNEL | {"name": name, "args": {"stream": 7, "device": 0, "correlation": 1}})
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def profile(path, base, table=None):
    beside = "" if table is None else f'table = "{table}"\n'
    path.write_text(f'base = "{base}"\n{beside}')
    return path


def run(capsys, *args):
    code = main(list(map(str, args)))
    return code, *capsys.readouterr()


@pytest.fixture
def graph(tmp_path):
    path = tmp_path / "job.prism"
    jobs.pipeline().save(path)
    return path


def test_calibration_never_writes_over_what_its_bases_read(tmp_path):
    profile(tmp_path / "a.toml", "h100", "a.kernels.csv")
    (tmp_path / "a.kernels.csv").write_text("")
    profile(tmp_path / "b.toml", "a.toml", "measured.kernels.csv")
    (tmp_path / "measured.kernels.csv").write_text("")
    base = str(profile(tmp_path / "c.toml", "b.toml"))
    for name in ("a", "b", "c", "measured"):
        with pytest.raises(PrismError, match="is also what would be read"):
            check_targets(tmp_path / f"{name}.toml", base=base, cluster=None)
    cluster = str(profile(tmp_path / "d.cluster.toml", "h100-8x"))
    with pytest.raises(PrismError, match="is also what would be read"):
        check_targets(tmp_path / "d.toml", base=None, cluster=cluster)
    check_targets(tmp_path / "new.toml", base=base, cluster=cluster)


def test_names_that_no_profile_can_hold_are_refused_before_the_work(tmp_path):
    with pytest.raises(ProfileError, match="not UTF-8"):
        check_targets(tmp_path / os.fsdecode(b"c\xff.toml"), base=None, cluster=None)


@pytest.mark.parametrize(
    ("args", "output"),
    [
        (
            (
                "kineto",
                "traces",
            ),
            "traces/a.json",
        ),
        (
            (
                "flight-recorder",
                "traces",
            ),
            "traces/notes",
        ),
        (
            (
                "chakra",
                "traces/a.json",
            ),
            "traces/comm_groups.json",
        ),
        (("chakra", "traces/a.json", "--cluster", "own.toml"), "own.toml"),
        (("pytorch-et", "traces/notes", "--kineto", "traces"), "traces/a.json"),
        (("straggler", "traces/notes", "--meta", "own.toml"), "own.toml"),
    ],
)
def test_import_never_writes_over_what_it_reads(tmp_path, monkeypatch, capsys, args, output):
    monkeypatch.chdir(tmp_path)
    Path("traces").mkdir()
    trace(Path("traces/a.json"))
    Path("traces/notes").write_text("")
    Path("traces/comm_groups.json").write_text("{}")
    profile(Path("own.toml"), "h100-8x")
    before = Path(output).read_bytes()
    code, _, err = run(capsys, "import", *args, "-o", output)
    assert (code, "is also what would be read" in err) == (1, True)
    assert Path(output).read_bytes() == before


def test_only_files_are_replaced(graph, tmp_path, capsys):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    source = trace(tmp_path / "a.json")
    for path in (pipe, tmp_path / "link"):
        for args in (("import", "kineto", source), ("export", "perfetto", graph)):
            code, _, err = run(capsys, *args, "-o", path)
            assert (code, "is a device, a pipe or a socket" in err) == (1, True)
        with pytest.raises(GraphError, match="is a device, a pipe or a socket"):
            jobs.pipeline().save(path)
        with pytest.raises(PrismError, match="is a device, a pipe or a socket"), whole_file(path):
            pass
    assert pipe.is_fifo()


def test_links_are_written_through(graph, tmp_path, capsys):
    there = tmp_path / "there"
    (there / "empty").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to("there/file")  # of nothing yet
    source = trace(tmp_path / "a.json")
    for args in (("import", "kineto", source), ("export", "perfetto", graph)):
        assert run(capsys, *args, "-o", link)[0] == 0
        assert link.is_symlink()
        assert (there / "file").stat().st_size > 0
        (there / "file").unlink()
    write_whole({link: b"1"})
    assert (there / "file").read_bytes() == b"1"
    folder = tmp_path / "folder"
    folder.symlink_to(there / "empty")
    assert run(capsys, "export", "kineto", graph, "-o", folder)[0] == 0
    assert folder.is_symlink()
    assert len(list((there / "empty").iterdir())) == 3
    assert sorted(p.name for p in there.iterdir()) == ["empty", "file"]


def test_links_that_lead_nowhere_and_the_current_folder_are_refused(graph, tmp_path, monkeypatch, capsys):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(PrismError, match="leads in a circle"):
        file_target(tmp_path / "a")
    (tmp_path / "lost").symlink_to("no/file")
    with pytest.raises(PrismError, match="its folder does not exist"):
        check_file(tmp_path / "lost")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    code, _, err = run(capsys, "export", "kineto", graph, "-o", ".")
    assert (code, "is the current folder" in err) == (1, True)


def test_files_that_belong_together_are_all_written_or_none(tmp_path, monkeypatch):
    paths = [tmp_path / name for name in "abc"]
    paths[0].write_bytes(b"before")
    made = outputs.os.fdopen

    devices = iter([None, None, "/dev/full"])

    def full(handle, mode):
        device = next(devices)
        return made(handle if device is None else os.open(device, os.O_WRONLY), mode)

    monkeypatch.setattr(outputs.os, "fdopen", full)
    with pytest.raises(PrismError, match=f"c: cannot be written: {os.strerror(errno.ENOSPC)}"):
        write_whole(dict.fromkeys(paths, b"after"))
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"a": b"before"}
    monkeypatch.undo()
    write_whole(dict.fromkeys(paths, b"after"))
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == dict.fromkeys("abc", b"after")


def test_the_slower_of_two_exports_is_told_so(tmp_path):
    with (
        pytest.raises(PrismError, match="holds files already"),
        whole_folder(tmp_path / "out"),
        whole_folder(tmp_path / "out") as first,
    ):
        (first / "file").touch()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_what_inputs_hold_moves_no_cursor():
    assert escaped("k\x1b[2J\r\n\x9b \u202e" + os.fsdecode(b"n\xff")) == r"k\x1b[2J\r\n\x9b \u202en\xff"
    assert escaped("a\n\tb ä 字", lines=True) == "a\n\tb ä 字"


@pytest.mark.parametrize("args", [("import", "kineto"), ("export", "perfetto")])
def test_errors_of_the_core_name_paths_that_are_not_utf8(tmp_path, capsys, args):
    path = tmp_path / os.fsdecode(b"n\xff")
    path.write_text("{")
    code, _, err = run(capsys, *args, path, "-o", tmp_path / "out")
    assert (code, r"n\xff: " in err, "bug" in err) == (1, True, False)


@contextmanager
def files_of_at_most(bytes):
    """What a full disk is to a write that fits no more, of this process."""
    kept = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes, kept[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, kept)


@pytest.mark.parametrize("room", [0, 700])
@pytest.mark.parametrize(
    "command",
    [
        "export perfetto job.prism",
        "export kineto job.prism",
        "export chakra job.prism",
        "export flight-recorder job.prism",
        "export memory-snapshot job.prism --rank 0",
        "import kineto rank0.json",
        "calibrate rank0.json --base h100 --least-samples 1",
    ],
)
def test_outputs_that_find_no_room_are_named_and_leave_nothing(tmp_path, monkeypatch, capsys, command, room):
    monkeypatch.chdir(tmp_path)
    jobs.pipeline(stages=4, micro_batches=8).save(tmp_path / "job.prism")
    trace(tmp_path / "rank0.json", name="k" * 3000)
    before = sorted(tmp_path.iterdir())
    with files_of_at_most(room):
        code, out, err = run(capsys, *command.split(), "-o", "out.toml")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "cannot be written: File too large" in err
    assert sorted(tmp_path.iterdir()) == before


def test_an_archive_that_finds_no_room_to_be_unpacked_is_not_called_damaged(tmp_path, monkeypatch, capsys):
    trace(tmp_path / "rank0.json")
    with tarfile.open(tmp_path / "job.tar", "w") as archive:
        archive.add(tmp_path / "rank0.json", "rank0.json")
    command = ("import", "kineto", tmp_path / "job.tar", "-o", tmp_path / "out.prism")
    with files_of_at_most(100):
        code, _, err = run(capsys, *command)
    assert (code, "TMPDIR" in err, "File too large" in err, "cannot be read" in err) == (1, True, True, False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    code, _, err = run(capsys, *command)
    assert (code, "TMPDIR" in err, "gone): No such file" in err, err.count("\n")) == (1, True, True, 1)


@pytest.mark.parametrize(
    ("number", "cure"), [(errno.ENOSPC, "TMPDIR"), (errno.EMFILE, "ulimit -n"), (errno.EIO, "dmesg")]
)
def test_what_the_system_refuses_without_a_name_is_no_bug(graph, monkeypatch, capsys, number, cure):
    def refuses(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("prismcore.cli.replay.open_graph", refuses)
    code, out, err = run(capsys, "replay", graph)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert os.strerror(number) in err
    assert cure in err
    monkeypatch.setattr("prismcore.cli.replay.open_graph", lambda _: os.read(-1, 1))
    code, _, err = run(capsys, "replay", graph)  # a descriptor that is none is our fault
    assert (code, "bug in prismcore" in err) == (1, True)
