"""The documents say what the program does: flags, keys, exit codes, and links that lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import cli_contract
import pytest
import test_cli_spare
from cli_runs import ENVIRONMENT, commands

from prismcore import errors
from prismcore.cli.main import EXIT_CODES, build_parser

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(p for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
CLI = (ROOT / "docs" / "cli.md").read_text()


def section(command):
    """The part of docs/cli.md about one command."""
    match = re.search(rf"^## prism {command}$(.*?)(?=^## |\Z)", CLI, re.M | re.S)
    assert match, f"docs/cli.md has no section 'prism {command}'"
    return match[1]


def test_every_flag_is_documented_and_no_other():
    for name, parser in commands(build_parser()):
        flags = {o for a in parser._actions for o in a.option_strings} - {"-h", "--help"}
        first_cells = " ".join(re.findall(r"^\| ([^|]*(?:\\\|[^|]*)*)\|", section(name), re.M))
        documented = set(re.findall(r"`(--?[a-z][a-z-]*)", first_cells))
        assert documented == flags, name


@pytest.mark.parametrize(
    ("command", "keys"),
    [
        ("collect", {"output", "wall_time_s", "warnings"}),
        ("import chakra", {*cli_contract.IMPORT_KEYS}),
        ("import flight-recorder", {*cli_contract.IMPORT_KEYS}),
        ("import kineto", {*cli_contract.IMPORT_KEYS}),
        ("import pytorch-et", {*cli_contract.IMPORT_KEYS}),
        ("import straggler", {*cli_contract.IMPORT_KEYS}),
        ("info", {*cli_contract.INFO_KEYS, *cli_contract.INFO_RANK_KEYS, "ranks"}),
        ("check", {*cli_contract.CHECK_KEYS}),
        ("replay", {*cli_contract.REPLAY_KEYS, "failure", "ranks"}),
        ("emulate", {*cli_contract.EMULATE_KEYS, *cli_contract.EMULATE_RANK_KEYS, "failure"}),
        ("export perfetto", {*cli_contract.EXPORT_KEYS}),
        ("export kineto", {*cli_contract.EXPORT_KINETO_KEYS}),
        ("export chakra", {*cli_contract.EXPORT_CHAKRA_KEYS}),
        ("export flight-recorder", {*cli_contract.EXPORT_FLIGHT_RECORDER_KEYS, "failure"}),
        ("export memory-snapshot", {*cli_contract.EXPORT_MEMORY_KEYS}),
        ("stragglers", {*cli_contract.STRAGGLER_KEYS}),
        ("calibrate", {*cli_contract.CALIBRATE_KEYS}),
        ("profile", {*cli_contract.PROFILE_KEYS}),
        ("spare place", {*test_cli_spare.PLACE_KEYS}),
        ("spare plan", {*test_cli_spare.PLAN_KEYS, *test_cli_spare.PLAN_ALTERNATIVE_KEYS}),
        ("spare simulate", {*test_cli_spare.SIMULATE_KEYS}),
        ("spare watch", {*cli_contract.WATCH_KEYS, *cli_contract.WATCH_GROUP_KEYS}),
        ("doctor", {"ok", "can", "checks"}),
    ],
)
def test_every_json_key_is_documented_and_no_other(command, keys):
    table = section(command).partition("| key | meaning |")[2]
    assert set(re.findall(r"^\| `(\w+)", table, re.M)) == keys


def test_exit_codes_are_documented():
    table = dict(re.findall(r"^\| (\d) \| (.+?) \|$", CLI, re.M))
    assert set(table) == set(re.findall(r"^  (\d)  ", EXIT_CODES, re.M))
    assert {str(getattr(errors, n).exit_code) for n in errors.__all__} <= set(table)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_named_files_exist(page):
    """Files of the repository that a page names in code spans."""
    pattern = r"`((?:docs|csrc|python|tests|examples|benchmarks|scripts)/[\w./-]+\.(?:md|py|h|cc|toml|sh))`"
    for name in re.findall(pattern, page.read_text()):
        assert (ROOT / name).exists() or "X" in Path(name).stem, name


@pytest.mark.torch
def test_the_python_of_the_guide_runs(tmp_path):
    """All blocks of docs/python.md as one program, and what it says at the end."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "python.md").read_text(), re.M | re.S)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    program = tmp_path / "guide.py"
    program.write_text("\n".join([*blocks, "import sys", "assert 'torch' not in sys.modules"]))
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for words in (
        "of 16 ranks ran",
        "ms an iteration",
        "rank classes",
        "exposed:",
        "simple",
        "deadlock: 2 of 2 ranks",
    ):
        assert words in done.stdout, words
    assert (tmp_path / "job.pftrace").stat().st_size > 10_000
