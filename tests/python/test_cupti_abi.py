"""What is read of CUPTI's records, and which calls are recorded, against the headers of torch's wheels."""

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
SITE = Path(next(iter(importlib.util.find_spec("nvidia").submodule_search_locations)))
INCLUDE = SITE / "cu13/include"
TRITON = Path(importlib.util.find_spec("triton").origin).parent

# A call that launches, copies, waits or allocates is recorded, or stands here with the reason.
LEFT_OUT = re.compile(
    ".*Array.*|.*(HtoA|AtoH|DtoA|AtoD|AtoA).*"  # of textures
    "|.*MultiDevice.*|cu(da)?MemPrefetch.*|cu(da)?Malloc(Host|Managed|Mip).*|cuMemAlloc(Host|Managed).*"
    "|cuda(Free|Malloc)Host.*|cudaMallocManaged.*|cuda(Free|Malloc)Mip.*|cuMemFreeHost|cudaHostAlloc.*"
    "|cuStreamCreateForCaptureToCig|cudaLaunch(_ptsz)?_v.*|cuLaunch(Grid(Async)?)?|cuda?MemSetMemPool.*"
)
RECORDED = re.compile(
    "cu(da)?(Launch|Memcpy|Memset|EventRecord|EventQuery|EventSynchronize|StreamSynchronize|StreamQuery"
    "|StreamWaitEvent|GraphLaunch|Malloc|Free|MemAlloc|MemFree|StreamCreate|DeviceSynchronize|CtxSynchronize).*"
)


def listed() -> dict[str, tuple[str, int]]:
    """Name -> side and number, as csrc/device/cupti/calls.cc has them."""
    text = (ROOT / "csrc/device/cupti/calls.cc").read_text()
    rows = re.findall(r"\{(runtime|driver), (\w+), (\d+), \"(\w+)\"\}", text)
    return {name: (side, int(number)) for side, _, number, name in rows}


def vendor(side: str) -> dict[str, int]:
    text = (INCLUDE / f"cupti_{side}_cbid.h").read_text()
    rows = re.findall(rf"CUPTI_{side.upper()}_TRACE_CBID_(\w+)\s*=\s*(\d+)", text)
    return {name: int(number) for name, number in rows}


def test_our_declarations_agree_with_the_wheels_headers() -> None:
    # The CUDA wheel lacks the folder crt/, which Triton's copy of the headers has.
    includes = [INCLUDE, TRITON / "backends/nvidia/include"]
    run = subprocess.run(
        ["c++", "-std=c++20", "-fsyntax-only", f"-I{ROOT / 'csrc'}"]
        + [f"-isystem{folder}" for folder in includes]
        + [str(ROOT / "tests/abi/cupti.cc")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("side", ["runtime", "driver"])
def test_recorded_calls_have_cuptis_numbers(side: str) -> None:
    ours = {name: number for name, (of, number) in listed().items() if of == side}
    theirs = vendor(side)
    assert len(ours) > 60
    assert ours == {name: theirs[name] for name in ours}


@pytest.mark.parametrize("side", ["runtime", "driver"])
def test_calls_that_matter_are_recorded_or_left_out_with_a_reason(side: str) -> None:
    """The old forms of driver calls (before ``_v2``) are none that a program of CUDA 13 can make."""
    theirs = vendor(side)
    superseded = {name for name in theirs if side == "driver" and f"{name}_v2" in theirs}
    kept = {"cuCtxSynchronize", "cuMemcpyBatchAsync", "cuMemcpy3DBatchAsync"}
    wanted = {n for n in theirs if RECORDED.fullmatch(n)} - (superseded - kept)
    assert not sorted(n for n in wanted - set(listed()) if not LEFT_OUT.fullmatch(n))


def test_the_wheels_library_has_every_entry_that_is_looked_up() -> None:
    text = (ROOT / "csrc/device/cupti/library.cc").read_text()
    wanted = set(re.findall(r'find\(library, "(\w+)"', text))
    lines = subprocess.run(
        ["nm", "-D", "--defined-only", SITE / "cu13/lib/libcupti.so.13"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    exported = {line.split()[-1].partition("@")[0] for line in lines}
    assert len(wanted) >= 14
    assert not wanted - exported
