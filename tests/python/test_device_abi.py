"""Our declarations of the CUDA driver against the headers of torch's wheels, and its error's class."""

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

from prismcore import errors

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "csrc/device/abi.h"
CHECKS = ROOT / "tests/abi/device.cc"


def rows() -> dict[str, str]:
    """Word -> symbol of the driver's table."""
    return dict(re.findall(r'X\((\w+), "(cu\w+)", \d+', TABLE.read_text()))


@pytest.mark.torch
def test_our_declarations_agree_with_the_wheels_headers() -> None:
    site = Path(next(iter(importlib.util.find_spec("nvidia").submodule_search_locations)))
    triton = Path(importlib.util.find_spec("triton").origin).parent
    run = subprocess.run(
        ["c++", "-std=c++20", "-fsyntax-only", f"-I{ROOT / 'csrc'}"]
        + [f"-isystem{folder}" for folder in (site / "cu13/include", triton / "backends/nvidia/include")]
        + [str(CHECKS)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.torch
def test_every_symbol_is_the_newest_that_the_header_has() -> None:
    # cuEventElapsedTime_v2 differs in its errors alone, and old drivers lack it.
    site = Path(next(iter(importlib.util.find_spec("nvidia").submodule_search_locations)))
    header = (site / "cu13/include/cuda.h").read_text()
    spelled = dict(re.findall(r"#define (cu[A-Z]\w+) +(?:__CUDA_API_PT[DS][SZ]\()?(cu\w+)", header))
    found = rows()
    assert len(found) > 40
    for symbol in found.values():
        plain = symbol.removesuffix("_v2")
        assert plain in header
        if plain != "cuEventElapsedTime":
            assert symbol == spelled.get(plain, plain)


def test_every_entry_of_the_table_is_checked() -> None:
    checked = dict(re.findall(r"SAME_CALL\((\w+), (cu\w+)\)", CHECKS.read_text()))
    assert checked == {word: symbol.removesuffix("_v2") for word, symbol in rows().items()}


def test_the_error_is_one_of_prismcores() -> None:
    error = errors.DriverError("text")
    assert isinstance(error, errors.PrismError)
    assert (error.rank, error.op, error.exit_code) == (-1, -1, 1)
