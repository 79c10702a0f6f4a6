"""The stand-ins against the libraries they stand for: no name may be missing without our saying so."""

import importlib.util
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

import prismcore

pytestmark = pytest.mark.torch

SITE = Path(next(iter(importlib.util.find_spec("nvidia").submodule_search_locations)))
TORCH = Path(importlib.util.find_spec("torch").origin).parent / "lib"
DOORS = Path(prismcore.__file__).parent / "lib"
EXPORTS = Path(__file__).parents[2] / "csrc/vgpu/standins/exports"

# vendor's library, ours, the list, version of the names, how the names begin
LIBRARIES = {
    "nccl": ("nccl/lib/libnccl.so.2", "libprism_nccl.so", None, ("nccl", "pnccl")),
    "cublas": ("cu13/lib/libcublas.so.13", "libcublas.so.13", "libcublas.so.13", ("cublas",)),
    "cublaslt": ("cu13/lib/libcublasLt.so.13", "libcublasLt.so.13", "libcublasLt.so.13", ("cublasLt",)),
}

# What torch 2.14.1 imports and the stand-ins refuse: counted, named in the report, answered with
# the library's code for "not supported".
REFUSED_NCCL = re.compile(
    "ncclComm(Grow|MemStats|Shrink|WindowDeregister|WindowRegister)|ncclDevComm(Create|Destroy)"
    "|ncclGet(LsaMultimem|Peer)DevicePointer|nccl(PutSignal|Signal|WaitSignal|WinGetUserPtr)"
)
REFUSED_CUBLAS = re.compile(
    # linear solvers: their pivots and states steer the host
    "cublas[SDCZ](gels|geqrf|getrf|getrs|trsm)Batched"
    # what the linear-algebra library builds its own solvers from
    "|cublas(I[sdcz]|[SDCZ][cdsz]?)(amax|amin|asum|axpy|copy|ger[cu]?|nrm2|rotm?g?|scal|swap)_v2"
    "|cublas[SDCZ](he(mm|mv|r|r2|r2k|rk)|sy(mm|mv|r|r2|r2k|rk)|tr(mm|mv|sm|sv))_v2"
    "|cublas[GS]et(Matrix|Vector)Async"
)
NOTHING = re.compile("(?!)")


@cache
def symbols(library: Path, which: str) -> dict[str, str]:
    """Name -> kind letter and version of the dynamic symbols of a library."""
    lines = subprocess.run(
        ["nm", "-D", f"--{which}-only", library], check=True, capture_output=True, text=True
    )
    found = {}
    for line in lines.stdout.splitlines():
        *_, kind, name = line.split()
        if kind != "A":
            plain, _, version = name.partition("@")
            found[plain] = f"{kind} {version.lstrip('@')}".strip()
    return found


def listed(library: str) -> set[str]:
    return {line.split()[0] for line in (EXPORTS / f"{library}.txt").read_text().split("\n") if line}


def imported(library: str, owner: str) -> set[str]:
    prefixes = LIBRARIES[library][3]
    others = ("cublasLt",) if library == "cublas" else ()
    return {
        name
        for name in symbols(TORCH / owner, "undefined")
        if name.startswith(prefixes) and not name.startswith(others)
    }


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_exported_name_is_listed(library):
    vendor = SITE / LIBRARIES[library][0]
    unknown = set(symbols(vendor, "defined")) - listed(library)
    assert not unknown, f"{vendor.name} exports what {library}.txt lacks: {sorted(unknown)}"


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_stand_in_exports_every_name_with_its_version(library):
    ours = symbols(DOORS / LIBRARIES[library][1], "defined")
    missing = listed(library) - set(ours)
    assert not missing, sorted(missing)
    version = LIBRARIES[library][2] or ""
    assert {text.partition(" ")[2] for name, text in ours.items() if name in listed(library)} == {version}


@pytest.mark.parametrize(
    ("library", "owner", "refused"),
    [
        ("nccl", "libtorch_cuda.so", REFUSED_NCCL),
        ("nccl", "libtorch_python.so", REFUSED_NCCL),
        ("cublas", "libtorch_cuda.so", REFUSED_CUBLAS),
        ("cublas", "libtorch_cuda_linalg.so", REFUSED_CUBLAS),
        ("cublaslt", "libtorch_cuda.so", NOTHING),
    ],
)
def test_torch_imports_nothing_that_is_neither_implemented_nor_refused(library, owner, refused):
    ours = symbols(DOORS / LIBRARIES[library][1], "defined")
    names = imported(library, owner)
    assert names
    implemented = {name for name in names if ours.get(name, "W").startswith("T")}
    listed_as_refused = {name for name in names if refused.fullmatch(name)}
    unknown = names - implemented - listed_as_refused
    assert not unknown, f"{owner} imports {sorted(unknown)}: implement, or add to the refused list"
    assert not implemented & listed_as_refused, "implemented, so no longer to be listed as refused"


def test_every_public_nccl_name_has_its_twin():
    ours = symbols(DOORS / "libprism_nccl.so", "defined")
    for name, kind in ours.items():
        if name.startswith("nccl") and name != "ncclResetDebugInitInternal":
            assert ours[f"p{name}"] == kind, name


@pytest.mark.parametrize("header", ["nccl", "blas"])
def test_our_declarations_agree_with_the_vendor_headers(header):
    root = Path(__file__).parents[2]
    includes = [SITE / "nccl/include", SITE / "cu13/include"]
    command = ["c++", "-std=c++20", "-fsyntax-only", f"-I{root / 'csrc'}"]
    command += [f"-isystem{folder}" for folder in includes]
    run = subprocess.run(
        [*command, root / f"tests/abi/{header}.cc"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
