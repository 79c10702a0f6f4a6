"""Public measurements, which are not in the repository, and the benchmarks that compare with them."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("PRISM_DATA") or ROOT.parent / "shared" / "data")

ACCURACY = ROOT / "benchmarks" / "accuracy"


def measured(name: str) -> Path:
    """A file or folder of them; the test that needs it skips where it is absent."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"no measurements: {path} is absent (PRISM_DATA names the folder)")
    return path


@contextmanager
def accuracy_benchmark(name: str) -> Iterator[ModuleType]:
    """``benchmarks/accuracy/NAME.py``, which finds the modules beside it, and none of them afterwards."""
    before = set(sys.modules)
    sys.path.insert(0, str(ACCURACY))
    try:
        spec = importlib.util.spec_from_file_location(name, ACCURACY / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(ACCURACY))
        for path in ACCURACY.glob("*.py"):
            if path.stem not in before:
                sys.modules.pop(path.stem, None)
