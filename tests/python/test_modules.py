"""What a program imports, read from its source, and where that lies."""

from __future__ import annotations

import pytest

from prismcore.launch.modules import find_program, is_installed, mentions, top_level_imports


def test_top_level_imports_are_seen_and_others_are_not():
    source = """
import os, numpy.linalg as la
from json import loads, decoder
from . import near
def f():
    import hidden
if True:
    import conditional
"""
    assert top_level_imports(source) == ["os", "numpy.linalg", "json", "json.loads", "json.decoder"]
    assert top_level_imports("def broken(:") == []


def test_modules_are_told_apart_by_where_they_lie(tmp_path, monkeypatch):
    (tmp_path / "beside.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    names = ["os", "numpy.linalg", "beside", "beside.name", "absent_module"]
    assert [name for name in names if is_installed(name)] == ["os", "numpy.linalg"]


@pytest.mark.parametrize(
    "line",
    [
        "sys.path.insert(0, 'vendor')",
        "if True:\n    sys.path.insert(0, 'vendor')",
        "sys.path = ['vendor'] + sys.path",
        "sys.path[:0] = ['vendor']",
        "sys.path += ['vendor']",
        "del sys.path[0]",
        "sys.path.remove('x')",
    ],
)
def test_imports_behind_a_change_of_where_modules_are_found_are_left_to_the_ranks(line):
    assert top_level_imports(f"import sys, a\n{line}\nimport b") == ["sys", "a"]


@pytest.mark.parametrize("line", ["sys.path.append('x')", "print(sys.path[0])", "os.path.sort()", "path = 1"])
def test_what_hides_no_module_hides_no_import(line):
    assert top_level_imports(f"import sys, os\n{line}\nimport b") == ["sys", "os", "b"]


def test_a_program_is_a_script_or_a_module(tmp_path):
    (tmp_path / "train.py").write_text("pass")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "__main__.py").write_text("")
    script = find_program(["train.py", "--a", "-m"], tmp_path)
    assert (script.path, script.module, script.arguments) == (tmp_path / "train.py", None, ["--a", "-m"])
    module = find_program(["-m", "package", "x"], tmp_path)
    assert (module.path, module.module) == (tmp_path / "package" / "__main__.py", "package")
    assert module.arguments == ["x"]


def test_names_are_found_however_they_are_spelled():
    for source in ("prismcore.mark_iteration()", "from prismcore import mark_iteration", "mark_iteration()"):
        assert mentions(source, "mark_iteration")
    assert not mentions("# mark_iteration", "mark_iteration")


@pytest.mark.parametrize("source", ["x = " + "-" * 100_000 + "1", "x\0y"])
def test_what_python_cannot_parse_has_no_imports(source):
    assert top_level_imports(source) == []
    assert not mentions(source, "x")
