import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismcore import _core
from prismcore.cost import DTYPES, KernelShape, kernel_cost, kernel_families, kernel_work
from prismcore.errors import ProfileError
from prismcore.profiles.device import device_profiles, load_device

# Kernels that torch 2.14.1 launched for the named op on a device with 132 SMs, in megatron-core and in
# plain programs: what the launch's arguments told, and, where one kernel does the whole op, elements
# of the output and bytes of all tensors (from the op's shapes, not from this model).
KERNELS = list(csv.DictReader((Path(__file__).parents[1] / "data" / "torch_kernels.csv").open()))
PROFILES = {name: load_device(name).to_core() for name in device_profiles()}
H100 = PROFILES["h100"]


def recorded_shape(row: dict[str, str], *, told: bool = True) -> KernelShape:
    return KernelShape(
        grid=(int(row["grid_x"]), int(row["grid_y"]), int(row["grid_z"])),
        block=(int(row["block_x"]), int(row["block_y"]), int(row["block_z"])),
        shared_bytes=int(row["shared_bytes"]),
        n=int(row["told_n"]) if told else 0,
        k=int(row["told_k"]) if told else 0,
    )


def test_the_recorded_kernels_cover_every_family_but_products():
    assert {row["family"] for row in KERNELS} == set(kernel_families()) - {"unknown", "gemm"}
    assert len({row["name"] for row in KERNELS}) == len(KERNELS) > 100


@pytest.mark.parametrize("row", KERNELS, ids=lambda row: f"{row['base']}-{row['op'][:40]}")
def test_recorded_kernels_are_known_by_family_elements_and_bytes(row):
    assert _core.kernel_base(row["name"]).decode() == row["base"]
    work = kernel_work(row["name"], recorded_shape(row))
    assert work.known
    assert work.family == row["family"]
    if row["elements"]:
        assert work.elements == int(row["elements"])
    if row["bytes"]:  # statistics and parameters of a row are not counted
        assert work.bytes == pytest.approx(int(row["bytes"]), rel=0.02)
    cost = kernel_cost(row["name"], recorded_shape(row), H100)
    assert cost.provenance == "model"
    assert cost.duration_ns >= H100.kernel_floor_ns


# Grids of these cover their elements, so that the count is known within a block without arguments.
COVERED = {
    "vectorized_elementwise_kernel": 16 * 128,
    "unrolled_elementwise_kernel": 8 * 128,
    "elementwise_kernel": 4 * 128,
}


@pytest.mark.parametrize("row", [r for r in KERNELS if r["base"] in COVERED and r["elements"]], ids=str)
def test_without_arguments_the_grid_tells_the_elements_within_a_block(row):
    elements = kernel_work(row["name"], recorded_shape(row, told=False)).elements
    assert int(row["elements"]) <= elements < int(row["elements"]) + COVERED[row["base"]]


def test_older_vectorized_kernels_do_four_elements_a_thread():
    name = (
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
        "at::detail::Array<char*, 1> >(int, at::native::FillFunctor<float>, at::detail::Array<char*, 1>)"
    )
    work = kernel_work(name, KernelShape(grid=(10, 1, 1), block=(128, 1, 1)))
    assert (work.family, work.elements, work.bytes) == ("copy", 5120, 5120 * 4)


FLASH = "Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t, Base>"
BACKWARD = "Flash_bwd_kernel_traits<128, 64, 128, 8, 2, 4, 2, false, false, cutlass::bfloat16_t, Base>"


@pytest.mark.parametrize("causal", [False, True])
def test_flash_attention_counts_products_of_the_sequence_with_itself(causal):
    mask = str(causal).lower()
    batch, heads, sequence, size = 2, 4, 4096, 128
    one_product = 2 * batch * heads * sequence * sequence * size / (2 if causal else 1)
    forward = kernel_work(
        f"void pytorch_flash::flash_fwd_kernel<{FLASH}, false, {mask}, false>(Flash_fwd_params)",
        KernelShape(grid=(sequence // 128, batch, heads), block=(128, 1, 1)),
    )
    assert (forward.family, forward.operations) == ("attention", 2 * one_product)
    assert forward.bytes == 4 * 2 * batch * heads * sequence * size
    backward = kernel_work(
        f"void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<{BACKWARD}, false, {mask}>(P)",
        KernelShape(grid=(sequence // 128, batch, heads), block=(256, 1, 1)),
    )
    assert (backward.family, backward.operations) == ("attention_backward", 5 * one_product)
    assert forward.assumed
    assert backward.assumed


def test_split_attention_does_the_work_once_whatever_the_splits():
    kernel = f"void pytorch_flash::flash_fwd_splitkv_kernel<{FLASH}, false, false, false, true, true, false, "
    split = kernel_work(f"{kernel}true, false>(P)", KernelShape(grid=(4, 6, 8), block=(128, 1, 1)))
    whole = kernel_work(f"{kernel}false, false>(P)", KernelShape(grid=(4, 2, 4), block=(128, 1, 1)))
    assert split.operations == whole.operations > 0


dims = st.integers(1, 20_000)
gemm_types = st.sampled_from(["bfloat16", "float16", "float32", "float64", "float8e4m3", "int8"])


@given(st.tuples(dims, dims, dims, st.integers(1, 64)), gemm_types, st.sampled_from(sorted(PROFILES)))
def test_products_are_never_faster_than_the_roofline(sizes, dtype, device):
    m, n, k, batch = sizes
    profile = PROFILES[device]
    shape = KernelShape(dtype=dtype, m=m, n=n, k=k, batch=batch)
    cost = kernel_cost("gemm", shape, profile)
    size = {"float32": 4, "float64": 8, "float8e4m3": 1, "int8": 1}.get(dtype, 2)
    peak = {
        "bfloat16": profile.bf16_flops,
        "float16": profile.fp16_flops,
        "float32": profile.fp32_flops,
        "float64": profile.fp64_flops,
        "float8e4m3": profile.fp8_flops,
        "int8": profile.int8_flops,
    }[dtype]
    share = dict(zip(kernel_families(), profile.efficiency, strict=False))
    moved = (m * k + k * n + m * n) * batch * size / (profile.memory_bandwidth * share["copy"])
    done = 2 * m * n * k * batch / (peak * share["gemm"]) if peak else 0
    assert cost.duration_ns >= profile.kernel_floor_ns + round(max(moved, done) * 1e9) - 1
    # and a large one comes within the last wave and the edge tiles of it
    if peak and min(m, n, k) > 4096:
        assert cost.duration_ns <= profile.kernel_floor_ns + 1.35e9 * max(moved, done)


@given(st.tuples(dims, dims, dims, st.integers(1, 8)), st.integers(0, 3), st.integers(1, 5000))
def test_more_of_a_product_never_costs_less(sizes, which, more):
    def product(m, n, k, batch):
        return KernelShape(dtype="bfloat16", m=m, n=n, k=k, batch=batch)

    small = product(*sizes)
    large = product(*(size + more * (i == which) for i, size in enumerate(sizes)))
    assert kernel_cost("gemm", large, H100).duration_ns >= kernel_cost("gemm", small, H100).duration_ns


@given(st.sampled_from(KERNELS), st.integers(0, 2), st.integers(1, 2**20), st.booleans())
def test_more_of_a_kernel_never_costs_less(row, axis, more, told):
    small = recorded_shape(row, told=told)
    if told and small.n:
        large = KernelShape(
            grid=small.grid, block=small.block, shared_bytes=small.shared_bytes, n=small.n + more, k=small.k
        )
    else:
        grid = list(small.grid)
        grid[axis] += more
        large = KernelShape(grid=tuple(grid), block=small.block, shared_bytes=small.shared_bytes)
    assert (
        kernel_cost(row["name"], large, H100).duration_ns >= kernel_cost(row["name"], small, H100).duration_ns
    )


counts = st.one_of(st.sampled_from([0, 1, 2**31, 2**32 - 1]), st.integers(0, 2**32 - 1))
triples = st.tuples(counts, counts, counts)
wide = st.integers(-(2**63), 2**63 - 1)
shapes = st.builds(
    KernelShape,
    grid=triples,
    block=triples,
    shared_bytes=counts,
    dtype=st.sampled_from(sorted(DTYPES)),
    transposes=st.integers(0, 255),
    m=wide,
    n=wide,
    k=wide,
    batch=wide,
)
real_names = st.sampled_from([row["name"].encode() for row in KERNELS])


@st.composite
def damaged_names(draw):
    name = bytearray(draw(real_names))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(name)))
        end = min(len(name), start + draw(st.integers(0, 8)))
        name[start:end] = draw(
            st.one_of(st.binary(max_size=8), st.sampled_from([b"I", b"E", b"S_", b"T_", b"Z"]))
        )
    return bytes(name)


@given(
    st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode), real_names, damaged_names()),
    shapes,
)
def test_any_bytes_and_any_launch_have_a_cost(name, shape):
    cost = kernel_cost(name, shape, H100)
    assert H100.kernel_floor_ns <= cost.duration_ns <= 2**53
    assert cost.family in kernel_families()
    if cost.provenance == "unknown":
        assert cost.duration_ns == H100.kernel_floor_ns
    else:
        assert cost.provenance == "model"


@pytest.mark.parametrize(
    "text", [b"", b"\0", b"\xff" * 10, b"_Z" * 500_000, b"a<" * 500_000, b"(" * 1_000_000]
)
def test_empty_and_huge_names_are_unknown(text):
    assert kernel_cost(text, KernelShape(grid=(0, 0, 0)), H100).provenance == "unknown"


def test_a_launch_that_cannot_be_is_refused_by_what_was_found():
    with pytest.raises(ProfileError, match=r"dtype: found 'bf16', expected one of int8"):
        kernel_cost("gemm", KernelShape(dtype="bf16"), H100)
    with pytest.raises(ProfileError, match="kernel shape: found"):
        kernel_cost("gemm", KernelShape(grid=(2**32, 1, 1)), H100)
    with pytest.raises(ProfileError, match="kernel shape: found"):
        kernel_cost("gemm", KernelShape(m=2**63), H100)
