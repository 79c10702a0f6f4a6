"""Which modules a script imports at its top level, without running it."""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
import re
import sys
import sysconfig
from pathlib import Path

import prismcore

__all__ = [
    "Program",
    "find_program",
    "is_installed",
    "is_loaded",
    "is_shared_code",
    "mentions",
    "top_level_imports",
]


class Program:
    """What stands after ``--``: ``script.py ARGS`` or ``-m module ARGS``."""

    def __init__(self, *, path: Path, module: str | None, arguments: list[str]) -> None:
        self.path = path
        self.module = module
        self.arguments = arguments

    def search_folder(self, folder: str) -> str:
        """What Python puts in front of ``sys.path``: where the script lies, or the working folder."""
        return str(self.path.parent) if self.module is None else folder

    def source(self) -> str:
        return self.path.read_text(encoding="utf-8", errors="replace")


def find_program(command: list[str], folder: Path) -> Program:
    """Raises FileNotFoundError, with one line of text, where there is no such script or module."""
    if command[0] != "-m":
        path = (folder / command[0]).resolve()
        if not path.is_file():
            raise FileNotFoundError(f"{command[0]}: no such script (from {folder}){_hint(command)}")
        return Program(path=path, module=None, arguments=command[1:])
    name, package = command[1], False
    sys.path.insert(0, str(folder))
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            package = True
            spec = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError):  # an empty or relative name
        spec = None
    finally:
        sys.path.remove(str(folder))
    if spec is None and package:
        raise FileNotFoundError(f"-m {name}: a package without a __main__ module, expected one to run")
    if spec is None:
        raise FileNotFoundError(f"-m {name}: no such module")
    if spec.origin is None or not spec.origin.endswith(".py"):
        raise FileNotFoundError(f"-m {name}: not a module of Python source, expected one to run")
    return Program(path=Path(spec.origin), module=name, arguments=command[2:])


def _hint(command: list[str]) -> str:
    """What a user may have meant who gives what starts a program before it."""
    starter = re.sub(r"[0-9.]+$", "", os.path.basename(command[0]))
    if starter not in ("python", "torchrun", "accelerate", "deepspeed", "mpirun", "srun"):
        return ""
    script = next((word for word in command[1:] if word.endswith(".py")), "script.py")
    return f"; expected the script itself, without {command[0]}: -- {script} ARGS, or -- -m module ARGS"


def _parsed(source: str) -> ast.Module:
    """The tree of a program; an empty one where Python cannot parse it: the rank will say so."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # null bytes; nested too deeply
        return ast.Module(body=[], type_ignores=[])


def top_level_imports(source: str) -> list[str]:
    """Absolute imports at the top level, in order: ``import a.b`` and ``from a.b import c`` as
    ``a.b`` and, for the second, ``a.b.c`` too (it may be a module). They end where the front of
    ``sys.path`` is changed: what comes after may hide what is found now. Empty where it does not
    parse: the rank will say so.
    """
    tree = _parsed(source)
    names: list[str] = []
    for node in tree.body:
        if any(_reorders_search(part) for part in ast.walk(node)):
            break
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.append(node.module)
            names += [f"{node.module}.{alias.name}" for alias in node.names if alias.name != "*"]
    return list(dict.fromkeys(names))


def _reorders_search(node: ast.AST) -> bool:
    """``sys.path.insert(...)``, ``sys.path = ...``, ``sys.path[:0] = ...`` and their like."""

    def is_search_path(value: ast.AST) -> bool:
        return (
            isinstance(value, ast.Attribute)
            and value.attr == "path"
            and isinstance(value.value, ast.Name)
            and value.value.id == "sys"
        )

    if isinstance(node, ast.Attribute) and is_search_path(node.value):
        return node.attr in ("insert", "remove", "pop", "clear", "reverse", "sort")
    target = node.value if isinstance(node, ast.Subscript) else node
    return is_search_path(target) and not isinstance(getattr(node, "ctx", None), ast.Load)


def mentions(source: str, name: str) -> bool:
    """Whether a name or attribute of this text stands in the source."""
    tree = _parsed(source)
    return any(
        (isinstance(node, ast.Name) and node.id == name)
        or (isinstance(node, ast.Attribute) and node.attr == name)
        or (isinstance(node, ast.alias) and node.name == name)
        for node in ast.walk(tree)
    )


def is_loaded(name: str) -> bool:
    """Whether the module, or the attribute of a module that ``from a import b`` may also mean, is there."""
    parent, _, last = name.rpartition(".")
    return name in sys.modules or (parent in sys.modules and hasattr(sys.modules[parent], last))


@functools.cache
def _shared_folders() -> tuple[str, ...]:
    keys = ("stdlib", "platstdlib", "purelib", "platlib")
    paths = [sysconfig.get_path(key) for key in keys] + [str(Path(prismcore.__file__).parent)]
    return tuple(os.path.realpath(path) + os.sep for path in paths)


@functools.lru_cache(maxsize=4096)
def is_shared_code(file: str) -> bool:
    """Whether a file belongs to an installed package, the standard library or prismcore, or is none."""
    return file.startswith("<") or os.path.realpath(file).startswith(_shared_folders())


def is_installed(name: str) -> bool:
    """Whether a module belongs to an installed package or the standard library; not where it lies
    elsewhere (beside the script, on PYTHONPATH, in an editable install) or nowhere."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names:
        return True
    try:
        spec = importlib.util.find_spec(top)
    except Exception:  # a finder may be anybody's
        return False
    if spec is None:
        return False
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or [])
    return all(is_shared_code(place) for place in places)  # a namespace may lie in several
