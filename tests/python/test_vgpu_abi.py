"""The runtime's and the driver's stand-ins against the libraries and headers of torch's wheels."""

import importlib.util
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

import prismcore
from prismcore.errors import CollectError
from prismcore.launch import standins

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
SITE = Path(next(iter(importlib.util.find_spec("nvidia").submodule_search_locations)))
TORCH = Path(importlib.util.find_spec("torch").origin).parent
TRITON = Path(importlib.util.find_spec("triton").origin).parent
DOORS = Path(prismcore.__file__).parent / "lib"
EXPORTS = ROOT / "csrc/vgpu/standins/exports"
REPORT = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"

# What torch 2.14.1 imports and the stand-ins refuse: counted, named in the report, answered with
# "not supported".
REFUSED_RUNTIME = re.compile(
    "cuda(Graph.*|StreamBeginCapture(ToGraph)?|StreamEndCapture|StreamUpdateCaptureDependencies"
    "|UserObject(Create|Release)|Ipc(CloseMemHandle|GetEventHandle|GetMemHandle|OpenEventHandle|OpenMemHandle))"
)
REFUSED_DRIVER = re.compile(
    "cu(GreenCtx.*|CtxFromGreenCtx|DevResourceGenerateDesc|DevSmResourceSplitByCount|DeviceGetDevResource"
    "|Multicast.*|MemExportToShareableHandle|MemImportFromShareableHandle|MemRetainAllocationHandle"
    "|MemGetAllocationPropertiesFromHandle|StreamWriteValue32|Link.*|TensorMapEncode(Tiled|Im2col)|OccupancyMaxActiveClusters)"
)
# By name, at first use: cudaGetDriverEntryPoint in libc10_cuda and Triton's driver.
LOOKED_UP = re.compile(r"\bcu[A-Z][A-Za-z0-9_]+\b")


@cache
def symbols(library: Path, which: str) -> dict[str, tuple[str, str]]:
    """Name -> kind letter and version of the dynamic symbols of a library."""
    lines = subprocess.run(
        ["nm", "-D", f"--{which}-only", library], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    found = {}
    for line in lines:
        *_, kind, name = line.split()
        plain, _, version = name.partition("@")
        found[plain] = (kind, version.lstrip("@"))
    return found


def listed(library: str) -> dict[str, str]:
    lines = (EXPORTS / f"{library}.txt").read_text().splitlines()
    return {line.split()[0]: line.partition(" ")[2] for line in lines if line}


def driver_names() -> set[str]:
    """Every driver function that torch links or looks up by name."""
    names = set(symbols(TORCH / "lib/libcaffe2_nvrtc.so", "undefined"))
    texts = subprocess.run(
        ["strings", "-n", "6", TORCH / "lib/libc10_cuda.so"], check=True, capture_output=True, text=True
    ).stdout
    names |= set(re.findall(r"^cu[A-Z]\w+$", texts, re.MULTILINE))
    triton = (TRITON / "backends/nvidia/driver.c").read_text()
    names |= set(LOOKED_UP.findall(triton))
    exported = listed("cuda")
    return {name for name in names if name in exported or f"{name}_v2" in exported}


@pytest.mark.parametrize("header", ["cudart", "cuda"])
def test_our_declarations_agree_with_the_wheels_headers(header: str) -> None:
    # The CUDA wheel lacks the folder crt/, which Triton's copy of the headers has.
    includes = [SITE / "cu13/include", TRITON / "backends/nvidia/include"]
    run = subprocess.run(
        ["c++", "-std=c++20", "-fsyntax-only", f"-I{ROOT / 'csrc'}"]
        + [f"-isystem{folder}" for folder in includes]
        + [str(ROOT / f"tests/abi/{header}.cc")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr


def test_every_runtime_name_is_exported_with_its_version() -> None:
    vendor = {
        name
        for name, (kind, _) in symbols(SITE / "cu13/lib/libcudart.so.13", "defined").items()
        if kind in "TW" and not name.startswith("_fini")
    }
    ours = symbols(DOORS / "libcudart.so.13", "defined")
    assert not {name for name in vendor if "cuda" in name} - set(listed("cudart"))
    assert not set(listed("cudart")) - set(ours)
    assert {ours[name][1] for name in listed("cudart")} == {"libcudart.so.13"}


def test_runtime_names_that_torch_imports_are_implemented_or_refused() -> None:
    ours = symbols(DOORS / "libcudart.so.13", "defined")
    wanted = {
        name
        for library in (TORCH / "lib").glob("lib*.so")
        for name, (_, version) in symbols(library, "undefined").items()
        if version == "libcudart.so.13"
    }
    assert len(wanted) > 100
    implemented = {name for name in wanted if ours[name][0] == "T"}
    refused = {name for name in wanted if REFUSED_RUNTIME.fullmatch(name)}
    assert not sorted(wanted - implemented - refused), "implement these, or list them as refused"
    assert not implemented & refused, "implemented, so no longer to be listed as refused"


def test_driver_names_that_torch_and_triton_use_are_implemented_or_refused() -> None:
    ours = symbols(DOORS / "libcuda.so.1", "defined")
    wanted = driver_names()
    assert {"cuMemCreate", "cuLaunchKernelEx", "cuLogsRegisterCallback"} <= wanted
    # Looked up with the newest suffix first, as the stand-in's own look-up does.
    implemented = {
        name
        for name in wanted
        if next((ours[n][0] for n in (f"{name}_v4", f"{name}_v3", f"{name}_v2", name) if n in ours), "W")
        == "T"
    }
    refused = {name for name in wanted if REFUSED_DRIVER.fullmatch(name.removesuffix("_v2"))}
    assert not sorted(wanted - implemented - refused), "implement these, or list them as refused"
    assert not implemented & refused, "implemented, so no longer to be listed as refused"


def test_the_allocators_report_is_answered_by_us() -> None:
    assert REPORT in symbols(TORCH / "lib/libc10_cuda.so", "undefined")
    assert symbols(TORCH / "lib/libc10.so", "defined")[REPORT][0] == "T"
    assert symbols(DOORS / "libprism_allocator.so", "defined")[REPORT][0] == "T"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("__version__ = '2.9.1'\ncuda: Optional[str] = '12.8'\n", "torch 2.9.1 is built for CUDA 12.8"),
        ("__version__ = '2.14.1+cpu'\ncuda: Optional[str] = None\n", "2.14.1+cpu is built for no CUDA"),
        ("__version__ = '2.14.1'\ncuda: Optional[str] = '13.0'\n", "does not load libcudart.so.13"),
    ],
)
def test_another_torch_is_refused_in_one_line(
    text: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    (package / "version.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "torch", raising=False)
    with pytest.raises(CollectError) as refused:
        standins.check_torch()
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_installed_torch_fits() -> None:
    assert standins.check_torch().startswith("2.14")


def test_loading_after_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standins, "_loaded", [])
    monkeypatch.setitem(__import__("sys").modules, "torch", object())
    with pytest.raises(CollectError, match="imported already"):
        standins.load()
