"""Modelled kernels against public measurements; the bounds are stated in docs/accuracy.md."""

import importlib.util
import sys
from collections import defaultdict

import pytest
from measurements import ROOT, measured


def benchmark(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


accuracy = benchmark("kernel_accuracy")
host = benchmark("host_cost")


@pytest.fixture(scope="module")
def trace():
    return measured("megatron_tp8/kineto_rank1.json.gz")


@pytest.fixture(scope="module")
def kernels(trace):
    return list(accuracy.kernels_of(trace))


def test_sums_of_families_stay_within_the_stated_bounds(kernels):
    assert len(kernels) == 606
    rows = {row.group: row for row in accuracy.compare(kernels, 1, "a100", by_kernel=False)}
    assert rows["unknown"].kernels == 120
    bounds = {"all but unknown": 0.05, "gemm": 0.06, "softmax": 0.02, "normalization": 0.05, "copy": 0.06}
    for family, bound in bounds.items():
        assert abs(rows[family].error) <= bound, family


def test_every_product_has_the_dimensions_of_its_op(kernels):
    products = [kernel for kernel in kernels if "gemm" in kernel.name]
    assert len(products) == 241
    assert {(k.shape.batch, k.shape.n, k.shape.m, k.shape.k) for k in products} == {
        (1, 8192, 4096, 2048),
        (1, 8192, 2048, 4096),
        (1, 8192, 1536, 4096),
        (1, 8192, 4096, 512),
        (1, 8192, 6400, 4096),
        (32, 2048, 2048, 64),
        (32, 2048, 64, 2048),
    }


def test_large_products_are_within_six_percent(kernels):
    large = [
        kernel for kernel in kernels if kernel.shape.m and kernel.shape.k >= 512 and kernel.shape.batch == 1
    ]
    for row in accuracy.compare(large, 1, "a100", by_kernel=True):
        assert abs(row.error) <= 0.06, row


def test_host_figures_of_the_profiles_lie_below_what_a_profiled_host_takes(trace):
    calls, gaps = defaultdict(list), defaultdict(list)
    host.collect(trace, calls, gaps)
    figures = accuracy.load_device("a100").host
    bound = host.row("", [gap for values in gaps.values() for gap in values])
    assert figures.launch_ns <= bound.quantiles[2] * 1000  # the median
    assert figures.query_ns == 1000 * host.row("", calls["cudaEventQuery"]).quantiles[2]
