"""The command line as a user meets it: a process, its two streams and its exit code."""

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import jobs
import pytest
from cli_contract import CHECK_KEYS, EXPORT_KEYS, FLAGS, INFO_KEYS, INFO_RANK_KEYS
from cli_runs import ENVIRONMENT, commands, inside, prism

import prismcore
from prismcore.cli.main import build_parser, split_program


def test_flags_are_frozen():
    found = {
        name: " ".join(sorted(o for a in p._actions for o in a.option_strings))
        for name, p in commands(build_parser())
    }
    assert found == FLAGS


def test_every_flag_has_a_help_text():
    for name, parser in commands(build_parser()):
        for action in parser._actions:
            if action.option_strings:
                assert action.help or action.option_strings == ["-o", "--output"], (
                    name,
                    action.option_strings,
                )


def test_everything_after_the_first_dashes_is_untouched():
    assert split_program(["a", "--", "x", "--", "--json"]) == (["a"], ["x", "--", "--json"])
    assert split_program(["a"]) == (["a"], None)


def test_help_and_version_exit_0_on_stdout():
    nested = (["export", "perfetto", "--help"], ["spare", "plan", "--help"], ["spare", "watch", "--help"])
    for args in (["--help"], ["--version"], ["collect", "--help"], *nested):
        done = prism(*args)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["no-such-command"],
        ["replay"],
        ["info", "x.prism", "--rank", "1"],  # abbreviations are not flags
        ["replay", "x.prism", "--slow-rank", "1:zero"],
        ["replay", "x.prism", "--slow-link", "0-1"],
        ["replay", "x.prism", "--jitter", "0.1"],
        ["replay", "x.prism", "--fail-ranks", "1"],
        ["info", "x.prism", "--ranks", "3-1"],
        ["collect", "--world-size", "0", "-o", "x.prism", "--", "a.py"],
        ["info", "x.prism", "--", "a.py"],
        ["spare", "watch"],
        ["spare", "watch", "x.jsonl", "--refresh-s", "0"],
        ["spare", "watch", "x.jsonl", "--rows", "0"],
    ],
)
def test_usage_errors_are_one_line_and_exit_2(args):
    done = inside(*args)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("prism: error: ")
    assert done.stderr.count("\n") == 1


def test_info_json(graphs):
    done = prism("info", graphs / "job.prism", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert list(report) == INFO_KEYS
    assert set(report["provenance"]) == {"measured", "table", "model", "unknown"}
    assert sum(report["provenance"].values()) == pytest.approx(1)
    assert (report["world_size"], report["classes"], report["iterations"]) == (3, 3, 3)
    assert report["file_bytes"] == (graphs / "job.prism").stat().st_size
    assert report["spread"] == {"iteration_time": 0.0, "peak": 0.001}


def test_info_json_of_ranks(graphs):
    report = json.loads(prism("info", graphs / "job.prism", "--json", "--ranks", "0,2").stdout)
    assert list(report) == [*INFO_KEYS, "ranks"]
    assert list(report["ranks"]) == ["0", "2"]
    assert all(list(rank) == INFO_RANK_KEYS for rank in report["ranks"].values())
    assert report["ranks"]["0"]["peak_requested_bytes"] == 100


def test_check(graphs):
    done = prism("check", graphs / "job.prism", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0
    assert list(report) == CHECK_KEYS
    assert report["ok"] is True
    assert report["error"] is None
    assert report["events"] > 0


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("deadlock", "DeadlockError", ("pair", "rank 0", "rank 1", "stuck.py")),
        ("mismatch", "MismatchError", ("pair", "rank 0", "rank 1", "sum.py")),
    ],
)
def test_jobs_that_cannot_run_exit_3_and_say_why(graphs, name, kind, words):
    path = graphs / f"{name}.prism"
    for command in (("replay",), ("check",), ("export", "perfetto", "-o", graphs / "x.pftrace")):
        done = inside(*command, path)
        assert done.returncode == 3
        assert done.stderr.startswith("prism: error: ")
        assert all(word in done.stderr for word in words), done.stderr
    assert not (graphs / "x.pftrace").exists()
    done = prism("check", path, "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 3
    assert (report["ok"], report["error"]["kind"]) == (False, kind)
    assert report["error"]["message"] in done.stderr


@pytest.mark.parametrize("name", ["short", "flipped", "empty", "text", "absent"])
@pytest.mark.parametrize(
    "command", [("info",), ("check",), ("replay",), ("export", "perfetto", "-o", "x.pftrace")]
)
def test_files_that_are_no_graph_exit_1_in_one_line(graphs, tmp_path, monkeypatch, name, command):
    monkeypatch.chdir(tmp_path)
    done = inside(*command, graphs / f"{name}.prism")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("prism: error: ")
    assert done.stderr.count("\n") == 1
    assert f"{name}.prism" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("info", "--ranks", "7"), "--ranks: rank 7 found, expected ranks that the graph holds: 0-2"),
        (("replay", "--ranks", "1-9"), "--ranks: ranks 3-9 found"),
        (("replay", "--slow-rank", "5:2"), "--slow-rank: rank 5 found"),
        (("replay", "--slow-rank", "1:absent.csv"), "absent.csv: cannot be read"),
        (("replay", "--slow-link", "5-0:2"), "--slow-link: rank 5 found"),
        (("replay", "--fail-ranks", "0,4-5@1s"), "--fail-ranks: ranks 4-5 found"),
        (("replay", "--slow-link", "0-5:2"), "--slow-link: rank 5 found"),
        (("replay", "--profile", "h1000"), "h1000"),
        (("replay", "--cluster", "absent.toml"), "absent.toml"),
        (("export", "perfetto", "--ranks", "4", "-o", "x.pftrace"), "--ranks: rank 4 found"),
        (("export", "perfetto", "--iteration", "3", "-o", "x.pftrace"), "iteration 3 found"),
        (("export", "perfetto", "-o", "no/such/x.pftrace"), "no/such"),
        (("export", "perfetto", "-o", "."), "is a folder"),
        (("info", "--ranks", "0-16777215"), "ranks 3-16777215 found"),
    ],
)
@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_user_errors_exit_1_in_one_line(graphs, tmp_path, monkeypatch, *, args, words, flags):
    monkeypatch.chdir(tmp_path)
    done = inside(*args, graphs / "job.prism", *flags)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("prism: error: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["job.prism", "link.prism", "same.prism"])
def test_what_is_read_is_not_written_over(graphs, tmp_path, name):
    job = tmp_path / "job.prism"
    shutil.copy(graphs / "job.prism", job)
    (tmp_path / "link.prism").symlink_to(job)
    (tmp_path / "same.prism").hardlink_to(job)
    before = job.read_bytes()
    done = inside("export", "perfetto", job, "-o", tmp_path / name)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is also what would be read" in done.stderr
    assert job.read_bytes() == before


def test_the_program_is_not_written_over(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("print()\n")
    done = inside("collect", "--world-size", "2", "-o", script, "--", script)
    assert (done.returncode, script.read_text()) == (1, "print()\n")
    assert "is also what would be read" in done.stderr


def test_an_unknown_cluster_is_answered_with_the_known_ones(tmp_path):
    done = inside(
        "collect", "--world-size", "2", "--cluster", "h100", "-o", tmp_path / "x.prism", "--", "train.py"
    )
    assert done.returncode == 1
    assert "expected one of a100-8x, b200-8x, h100-8x, h200-8x" in done.stderr
    assert "did you mean 'h100-8x'?" in done.stderr


def test_info_shows_the_whole_command_and_the_rules(tmp_path):
    command = ["train.py", *(f"--flag-{k}=a value" for k in range(40))]
    metadata = {**jobs.METADATA, "command": command, "rules": {"1 recv": 24, "2 odd": 1}}
    metadata["rules_file"] = {"name": "rules.py", "sha256": "0"}
    path = tmp_path / "job.prism"
    jobs.pipeline(metadata=metadata).save(path)
    report = json.loads(inside("info", path, "--json").stdout)
    assert (report["command"], report["rules"]) == (command, metadata["rules"])
    shown = inside("info", path).stdout
    _, _, after = shown.partition("program ")
    program = after.partition("\ndevice ")[0]
    assert shlex.split(" ".join(program.split())) == command
    assert "rules.py: recv (24 calls), odd (1 call)" in shown
    jobs.pipeline(metadata={}).save(path)
    report = json.loads(inside("info", path, "--json").stdout)
    assert (report["command"], report["rules"]) == (None, None)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ("emulate", "x.prism", "--sandbox", "1", "train.py", "-x"),
            "unrecognized arguments: train.py -x; put -- before the program: prism emulate ... -- train.py "
            "-x (see prism emulate --help)",
        ),
        (
            ("collect", "--world-size", "8", "-o", "x.prism", "train.py"),
            "put -- before the program: prism collect ... -- train.py (see prism collect --help)",
        ),
        (
            ("emulate", "x.prism", "--sandbox", "1", "--iterations", "3", "--", "train.py"),
            "--iterations is that of the collection, which the graph holds (see prism emulate --help)",
        ),
        (
            ("emulate", "x.prism", "--sandbox", "1", "--world-size=8", "--", "train.py"),
            "--world-size is that of the collection",
        ),
        (("replay", "x.prism", "--no"), "unrecognized arguments: --no (see prism replay --help)"),
        (("info", "x.prism", "--ranks", ""), "found no rank, expected ranks and ranges such as 0,8,16-31"),
        (("info", "x.prism", "--ranks", "a"), "found 'a', expected ranks"),
        (("info", "x.prism", "--ranks", "1,a"), "found 'a' in '1,a', expected ranks"),
    ],
)
def test_usage_errors_say_what_to_do(args, words):
    done = inside(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_info_names_the_routing_rule_where_there_is_one(tmp_path):
    for rule in ("hot-experts:experts=0,heat=7,seed=0", None):
        jobs.pipeline(metadata={**jobs.METADATA, "routing": rule}).save(tmp_path / "job.prism")
        lines = inside("info", tmp_path / "job.prism").stdout.splitlines()
        named = [line.split()[1:] for line in lines if line.startswith("routing ")]
        assert named == ([[rule]] if rule else [])


def test_export_perfetto(graphs, tmp_path):
    out = tmp_path / "job.pftrace"
    done = prism("export", "perfetto", graphs / "job.prism", "-o", out, "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0
    assert list(report) == EXPORT_KEYS
    assert report["ranks"] == [0, 1, 2]
    assert report["file_bytes"] == out.stat().st_size > 0
    first = out.read_bytes()
    prism("export", "perfetto", graphs / "job.prism", "-o", out, "--ranks", "0-2", "--iteration", "2")
    assert out.read_bytes() == first
    assert [p.name for p in tmp_path.iterdir()] == ["job.pftrace"]


@pytest.mark.parametrize(
    "command", [("info", "--ranks", "0"), ("replay", "--ranks", "0"), ("replay",), ("check",)]
)
def test_tables_are_plain_text_where_nobody_looks(graphs, command):
    done = prism(*command, graphs / "job.prism")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert all(line == line.rstrip() for line in lines)
    assert str(graphs / "job.prism") in lines[0]


def on_a_terminal(*args, columns=80, **variables):
    """What a terminal of that many columns receives."""
    import pty
    import termios
    from fcntl import ioctl
    from struct import pack

    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, pack("4H", 50, columns, 0, 0))
    environment = {k: v for k, v in ENVIRONMENT.items() if k not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")}
    environment |= {"TERM": "xterm-256color", **variables}
    command = [sys.executable, "-m", "prismcore", *map(str, args)]
    child = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: the child has gone
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    assert child.wait(60) == 0
    return shown.decode()


def test_a_terminal_has_colours_unless_it_wants_none(graphs):
    job = graphs / "job.prism"
    assert "\x1b[36m" in on_a_terminal("check", job)
    plain = on_a_terminal("check", job, NO_COLOR="1")
    assert "\x1b[3" not in plain  # bold may stay: it is no colour
    assert "\x1b" not in on_a_terminal("check", job, TERM="dumb")


@pytest.mark.parametrize(
    "args", [[], ["collect"], ["replay"], ["emulate"], ["export", "perfetto"], ["spare", "watch"], ["doctor"]]
)
def test_help_fits_80_columns(args):
    shown = on_a_terminal(*args, "--help", COLUMNS="80")
    assert max(map(len, shown.splitlines())) <= 80


def test_collect_without_a_program_is_a_usage_error(tmp_path):
    for tail in ([], ["--"]):
        done = prism("collect", "--world-size", "2", "-o", tmp_path / "x.prism", *tail)
        assert done.returncode == 2
        assert "expected -- script.py ARGS" in done.stderr


@pytest.mark.parametrize(
    ("raised", "words", "traced"),
    [
        (RuntimeError("odd"), "is a bug in prismcore", True),
        (OSError("no name"), "is a bug in prismcore", True),
        (KeyboardInterrupt(), "prism: error: interrupted", False),
        (PermissionError(13, "Permission denied", "x.prism"), "x.prism: Permission denied", False),
    ],
)
def test_what_is_not_expected_says_so(graphs, monkeypatch, raised, words, traced):
    def fail(path):
        raise raised

    monkeypatch.setattr("prismcore.cli.info.open_graph", fail)
    done = inside("info", graphs / "job.prism")
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert ("Traceback" in done.stderr) == traced


def test_interrupt_from_the_keyboard(graphs):
    program = (
        "import os, signal, sys, threading\n"
        "from prismcore.cli import info\nfrom prismcore.cli.main import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it\n"
        "def wait(path):\n"
        "    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "    threading.Event().wait(60)\n"
        "info.open_graph = wait\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # background jobs ignore it
        "sys.exit(main(['info', 'x']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.strip() == "prism: error: interrupted"


def test_doctor_json():
    done = prism("doctor", "--json")
    report = json.loads(done.stdout)
    assert set(report) == {"ok", "can", "checks"}
    assert set(report["can"]) == {"replay", "collect", "gpu"}
    assert done.returncode == (0 if report["ok"] else 1)
    for check in report["checks"]:
        assert set(check) == {"name", "status", "found", "advice", "needed_for"}
        assert check["status"] in ("ok", "limited", "missing")
        assert check["found"]
        assert check["status"] == "ok" or check["advice"]


def test_doctor_table_names_every_check():
    report = json.loads(prism("doctor", "--json").stdout)
    text = prism("doctor").stdout
    assert "\x1b" not in text
    for check in report["checks"]:
        assert check["name"] in text


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["collect", "--help"],
        ["doctor"],
        ["info", "job.prism", "--ranks", "0"],
        ["check", "job.prism"],
        ["replay", "job.prism", "--profile", "a100", "--cluster", "a100-8x"],
        ["export", "perfetto", "job.prism", "-o", os.devnull + ".x"],
    ],
)
def test_torch_is_not_imported(graphs, tmp_path, args):
    args = [a.replace("job.prism", str(graphs / "job.prism")) for a in args]
    args = [a.replace(os.devnull, str(tmp_path / "trace")) for a in args]
    program = (
        "import sys\nfrom prismcore.cli.main import main\n"
        f"code = main({args!r})\n"
        "heavy = [m for m in ('torch', 'megatron', 'perfetto', 'scipy') if m in sys.modules]\n"
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_help_imports_neither_the_core_nor_rich():
    program = (
        "import sys\nfrom prismcore.cli.main import main\nmain(['--help'])\n"
        "heavy = {'torch', 'numpy', 'rich', 'prismcore._core'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_packages_come_with_the_first_use_of_their_name():
    program = (
        "import sys, prismcore\nheavy = {'torch', 'numpy', 'prismcore._core'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert callable(prismcore.stragglers.analyse) and callable(prismcore.calibrate.calibrate)\n"
        "assert prismcore.traces.__doc__ and prismcore.exports.__doc__ and not hasattr(prismcore, 'trace')\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_missing_core_is_one_line(tmp_path: Path) -> None:
    package = Path(prismcore.__file__).parent
    copy = tmp_path / "prismcore"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("_core*", "lib", "__pycache__"))
    run = subprocess.run(
        [sys.executable, "-m", "prismcore", "info", "job.prism"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert run.returncode == 1
    assert len(run.stderr.splitlines()) == 1
    assert "compiled core cannot be loaded" in run.stderr
