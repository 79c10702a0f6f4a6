"""The command line as a user meets it: a process, its two streams and its exit code."""

import argparse
import json
import os
import subprocess
import sys

import pytest

from prismcore.cli.main import build_parser, split_program

FLAGS = {
    "collect": "--cluster --device --help --host --iterations --json --keep-partial --output --preload "
    "--ranks --slots --world-size -h -o",
    "info": "--help --json --ranks -h",
    "check": "--help --json -h",
    "replay": "--cluster --help --json --profile --ranks --slow-rank --threads -h",
    "export perfetto": "--help --iteration --json --output --ranks -h -o",
    "doctor": "--help --json -h",
}


def prism(*args, **kwargs):
    return subprocess.run(
        [sys.executable, "-m", "prismcore", *map(str, args)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **kwargs,
    )


def commands(parser, prefix=()):
    """Every command of a parser with its own flags."""
    subs = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not subs:
        yield " ".join(prefix), parser
    for action in subs:
        for name, sub in action.choices.items():
            yield from commands(sub, (*prefix, name))


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
    for args in (["--help"], ["--version"], ["collect", "--help"], ["export", "perfetto", "--help"]):
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
        ["replay", "x.prism", "--slow-link", "0-1:2"],  # of a later step: refused, not ignored
        ["replay", "x.prism", "--slow-rank", "1:zero"],
        ["info", "x.prism", "--ranks", "3-1"],
        ["collect", "--world-size", "0", "-o", "x.prism", "--", "a.py"],
        ["info", "x.prism", "--", "a.py"],
    ],
)
def test_usage_errors_are_one_line_and_exit_2(args):
    done = prism(*args)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("prism: error: ")
    assert done.stderr.count("\n") == 1


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


@pytest.mark.parametrize("args", [["--help"], ["doctor"], ["doctor", "--json"], ["replay", "--help"]])
def test_torch_is_not_imported(args):
    program = (
        "import sys\nfrom prismcore.cli.main import main\n"
        f"code = main({args!r})\n"
        "heavy = [m for m in ('torch', 'numpy.f2py', 'megatron') if m in sys.modules]\n"
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


def test_a_reader_that_leaves_early_is_no_error():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as out:
        done = subprocess.run(
            [sys.executable, "-m", "prismcore", "doctor"],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == ""
