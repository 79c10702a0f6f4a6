"""The cuBLAS and cuBLASLt stand-ins under torch: every product reaches the record with its dimensions.

cuBLAS counts columns first: torch's [64, 32] x [32, 16] is recorded as m 16, n 64, k 32.
"""

import pytest
from rank_process import run_rank

pytestmark = pytest.mark.torch


def products(body: str) -> list:
    return run_rank(body + '\nanswer["kernels"] = kernels()\n')["kernels"]


OPERANDS = """
import torch.nn.functional as F
a, b = torch.zeros(64, 32, device="cuda"), torch.zeros(32, 16, device="cuda")
h, k = a.bfloat16(), b.bfloat16()
"""


def test_plain_products_with_types_and_transposes():
    assert products(
        OPERANDS
        + """
a @ b
a.t().contiguous().t() @ b
a @ b.t().contiguous().t()
h @ k
a.half() @ b.half()
a.double() @ b.double()
torch.backends.cuda.matmul.fp32_precision = "tf32"
a @ b
h @ k
"""
    ) == [
        ["gemm", "float32", 0, [16, 64, 32, 1]],
        ["gemm", "float32", 2, [16, 64, 32, 1]],
        ["gemm", "float32", 1, [16, 64, 32, 1]],
        ["gemm", "bfloat16", 0, [16, 64, 32, 1]],
        ["gemm", "float16", 0, [16, 64, 32, 1]],
        ["gemm", "float64", 0, [16, 64, 32, 1]],
        ["gemm:tf32", "float32", 0, [16, 64, 32, 1]],
        ["gemm", "bfloat16", 0, [16, 64, 32, 1]],
    ]


def test_batches_vectors_and_empty_products():
    assert products(
        OPERANDS
        + """
for dtype in (torch.half, torch.float, torch.double, torch.bfloat16):
    x, y = torch.zeros(6, 5, 4, device="cuda", dtype=dtype), torch.zeros(6, 4, 3, device="cuda", dtype=dtype)
    torch.bmm(x, y)
    torch.baddbmm(torch.zeros(6, 5, 3, device="cuda", dtype=dtype), x, y, beta=0.0)
torch.mv(a, torch.zeros(32, device="cuda"))
torch.dot(a[0], a[1])
a[:0] @ b
a.t() @ a
"""
    ) == [
        *[
            ["gemm_batched", dtype, 0, [3, 5, 4, 6]]
            for dtype in ("float16", "float32", "float64", "bfloat16")
            for _ in range(2)
        ],
        ["gemv", "float32", 1, [64, 1, 32, 1]],
        ["dot", "float32", 0, [1, 1, 32, 1]],
        ["gemm", "float32", 2, [32, 32, 64, 1]],
    ]


def test_products_with_an_epilogue_say_which():
    assert products(
        OPERANDS
        + """
F.linear(h, k.t().contiguous(), torch.zeros(16, device="cuda", dtype=torch.bfloat16))
torch.addmm(torch.zeros(16, device="cuda"), a, b)
torch._addmm_activation(torch.zeros(16, device="cuda").bfloat16(), h, k, use_gelu=True)
one = torch.ones(1, device="cuda")
narrow = torch.zeros(16, 32, device="cuda").to(torch.float8_e4m3fn)
torch._scaled_mm(a.to(torch.float8_e4m3fn), narrow.t(), one, one, out_dtype=torch.bfloat16)
torch._int_mm(a.to(torch.int8), b.to(torch.int8))
torch.backends.cuda.preferred_blas_library("cublaslt")
h @ k
"""
    ) == [
        ["gemm_lt:bias", "bfloat16", 1, [16, 64, 32, 1]],
        ["gemm_lt:bias", "float32", 0, [16, 64, 32, 1]],
        ["gemm_lt:gelu_bias", "bfloat16", 0, [16, 64, 32, 1]],
        ["gemm_lt", "float8e4m3", 1, [16, 64, 32, 1]],
        ["gemm_lt", "int8", 0, [16, 64, 32, 1]],
        ["gemm_lt", "bfloat16", 0, [16, 64, 32, 1]],
    ]


def test_a_product_of_a_type_without_figures_counts_as_unknown():
    answer = run_rank(
        OPERANDS + 'a.cfloat() @ b.cfloat()\nanswer["report"] = json.loads(_core.vgpu_report())'
    )
    assert "gemm:complex64" in str(answer["report"]["unknown_kernels"])


def test_a_backward_pass_is_three_products_a_layer():
    answer = run_rank(
        """
        layer = torch.nn.Linear(32, 16, bias=False, device="cuda", dtype=torch.bfloat16)
        x = torch.zeros(64, 32, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        layer(x).sum().backward()
        answer["kernels"] = kernels()
        """
    )
    flops = [2 * m * n * k for _, _, _, (m, n, k, _) in answer["kernels"]]
    assert flops == [2 * 64 * 32 * 16] * 3


def test_what_is_not_implemented_fails_by_name_and_is_counted():
    answer = run_rank(
        """
        try:
            torch.linalg.solve_triangular(on_device([[1.0]]), on_device([[1.0]]), upper=True)
        except RuntimeError as error:
            answer["error"] = str(error)
        answer["report"] = json.loads(_core.vgpu_report())["unimplemented"]
        """
    )
    assert "CUBLAS_STATUS_NOT_SUPPORTED" in answer["error"]
    assert [(row["library"], row["calls"]) for row in answer["report"]] == [("cublas", 1)]
    assert answer["report"][0]["function"].startswith("cublasStrsm")


def test_handles_and_arguments_are_checked():
    answer = run_rank(
        """
        blas = ctypes.CDLL("libcublas.so.13")
        handle, value = ctypes.c_void_p(), ctypes.c_int(-1)
        gemm = lambda *dims, lda=8, ta=0: blas.cublasSgemm_v2(
            handle, ta, 0, *dims, None, None, lda, None, 8, None, None, 8)
        answer["no handle"] = gemm(8, 8, 8)
        assert blas.cublasCreate_v2(ctypes.byref(handle)) == 0
        answer["math"] = [blas.cublasSetMathMode(handle, 3)]
        answer["math"] += [blas.cublasGetMathMode(handle, ctypes.byref(value)), value.value]
        answer["right"] = gemm(8, 8, 8)
        answer["wrong"] = [gemm(-1, 8, 8), gemm(8, 8, 8, lda=7), gemm(8, 8, 8, ta=9), gemm(4, 8, 9, ta=1)]
        result = ctypes.c_float(5)
        assert blas.cublasSdot_v2(handle, 3, None, 1, None, 1, ctypes.byref(result)) == 0
        answer["dot on the host"] = result.value
        answer["destroy"] = blas.cublasDestroy_v2(handle)
        blas.cublasGetStatusName.restype = ctypes.c_char_p
        answer["name"] = blas.cublasGetStatusName(15).decode()
        answer["kernels"] = kernels()
        """
    )
    assert answer["no handle"] == 1
    assert answer["math"] == [0, 0, 3]
    assert answer["right"] == 0
    assert answer["wrong"] == [7, 7, 7, 7]
    assert answer["dot on the host"] == 0
    assert answer["destroy"] == 0
    assert answer["name"] == "CUBLAS_STATUS_NOT_SUPPORTED"
    assert [row[0] for row in answer["kernels"]] == ["gemm:tf32", "dot"]
