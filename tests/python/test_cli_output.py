"""What becomes of results: written whole or said to be lost, whoever reads; errors never on stdout."""

import ast
import json
import os
import select
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cli_runs import ENVIRONMENT, prism

import prismcore
from prismcore.report.json import dumps

BUFFERING = pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
"""Python's own stdout behaves in two ways; containers usually set PYTHONUNBUFFERED."""


def leaving_stdout(*args, stdout, unbuffered="", **kwargs):
    """`prism` with that stdout: exit code and stderr."""
    command = [sys.executable, "-m", "prismcore", *map(str, args)]
    environment = {**ENVIRONMENT, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(
        command,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=240,
        check=False,
        env=environment,
        **kwargs,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "--version",
        "spare plan --help",
        "doctor",
        "doctor --json",
        "info JOB",
        "info JOB --json",
        "check JOB",
        "check JOB --json",
        "replay JOB",
        "replay JOB --json",
        "export perfetto JOB -o OUT",
        "export perfetto JOB -o OUT --json",
        "spare place",
        "spare place --json",
        "spare plan --groups 20 --redundancy 2 --steps 50 --seeds 1",
        "spare simulate --groups 20 --steps 50 --seeds 1 --json",
    ],
)
def test_a_reader_that_has_left_is_exit_1_without_a_word(graphs, tmp_path, command):
    names = {"JOB": graphs / "job.prism", "OUT": tmp_path / "job.pftrace"}
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as out:
        words = [names.get(word, word) for word in command.split()]
        assert leaving_stdout(*words, stdout=out, unbuffered="1") == (1, "")


LARGE = ("spare", "place", "--groups", "20000", "--redundancy", "6", "--json")
"""Prints some MB: more than any pipe holds."""


@BUFFERING
def test_a_reader_that_leaves_in_the_middle_is_exit_1_without_a_word(unbuffered):
    read, write = os.pipe()
    with os.fdopen(write, "wb") as out, ThreadPoolExecutor(1) as pool:
        done = pool.submit(leaving_stdout, *LARGE, stdout=out, unbuffered=unbuffered)
        assert os.read(read, 10) == b'{\n  "group'
        os.close(read)
        assert done.result() == (1, "")


@BUFFERING
def test_a_pipe_that_does_not_block_gets_all_of_it(unbuffered):
    read, write = os.pipe()
    os.set_blocking(write, False)
    with ThreadPoolExecutor(1) as pool, os.fdopen(read, "rb") as ours:
        with os.fdopen(write, "wb") as out:
            done = pool.submit(leaving_stdout, *LARGE, stdout=out, unbuffered=unbuffered)
            first = ours.read(1)  # it has begun, and soon finds the pipe full
        text = first + ours.read()
        assert done.result() == (0, "")
    assert len(json.loads(text)["stacks"]) == 20_000


@BUFFERING
@pytest.mark.parametrize("command", [("doctor",), ("--help",)])
def test_a_full_disk_is_one_line(unbuffered, command):
    with open("/dev/full", "wb") as out:
        code, words = leaving_stdout(*command, stdout=out, unbuffered=unbuffered)
    assert (code, words) == (
        1,
        "prism: error: the results cannot be written to stdout: No space left on device\n",
    )


@BUFFERING
def test_a_disk_that_fills_in_the_middle_is_one_line(tmp_path, unbuffered):
    import resource
    import signal

    def little_room():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # as Python does: the write fails instead
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    with open(tmp_path / "out", "wb") as out:
        code, words = leaving_stdout(*LARGE, stdout=out, unbuffered=unbuffered, preexec_fn=little_room)
    assert (code, words) == (
        1,
        "prism: error: the results cannot be written to stdout: File too large\n",
    )


@pytest.mark.parametrize("command", [("doctor", "--json"), ("--help",)])
def test_a_closed_stdout_is_one_line(command):
    code, words = leaving_stdout(*command, stdout=None, preexec_fn=lambda: os.close(1))
    assert (code, words) == (1, "prism: error: stdout is closed, expected a place for the results\n")


@pytest.mark.parametrize("close", [True, False], ids=["closed", "without a reader"])
@pytest.mark.parametrize(
    ("command", "code"), [("info none.prism", 1), ("info", 2), ("spare place --groups 0", 2)]
)
def test_errors_that_nobody_hears_stay_off_stdout(command, code, close):
    read, write = os.pipe()
    os.close(read)
    program = [sys.executable, "-m", "prismcore", *command.split()]
    with os.fdopen(write, "wb") as err:
        done = subprocess.run(
            program,
            stdout=subprocess.PIPE,
            stderr=err,
            preexec_fn=(lambda: os.close(2)) if close else None,
            timeout=240,
            check=False,
            env=ENVIRONMENT,
        )
    assert (done.returncode, done.stdout) == (code, b"")


def test_an_encoding_without_box_drawing_is_no_bug():
    done = prism("spare", "place", env={**ENVIRONMENT, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "????" in done.stdout
    name = os.fsdecode(b"\xff\xe9.prism")
    assert dumps({"output": name}).isascii()
    assert json.loads(dumps({"output": name}))["output"] == name


TEXT = "train.py:100: UserWarning [bold]:fire: [/x] :warning:"


def test_what_others_wrote_comes_to_a_terminal_as_they_wrote_it(monkeypatch):
    from rich.table import Table

    from prismcore.cli import output

    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "100")
        table = Table("what", show_header=True)
        table.add_row(TEXT.replace("[", "\\["))
        output.show(TEXT, table)
        output.show_lines([TEXT])
        output.complain(f"[rank 0] {TEXT}\n")
        with output.progress_bar() as step:
            step(1, 2, "running")
            output.complain(f"[rank 0] {TEXT}\n")
        stream.flush()
        shown = b""
        while select.select((ours,), (), (), 0)[0]:
            shown += os.read(ours, 65536)
    os.close(ours)
    assert shown.decode().count(TEXT) == 5, shown.decode()


def test_nothing_but_output_writes_to_the_streams():
    """So that what holds for the commands above holds for all."""
    package = Path(prismcore.__file__).parent
    folders = (package / "cli", package / "report")
    for path in sorted(p for folder in folders for p in folder.rglob("*.py") if p.name != "output.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            called = node.func if isinstance(node, ast.Call) else None
            assert not (isinstance(called, ast.Name) and called.id == "print"), path
            assert not (isinstance(called, ast.Attribute) and ast.unparse(called).startswith("sys.std")), path
