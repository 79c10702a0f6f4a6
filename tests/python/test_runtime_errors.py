"""What the CUDA runtime and driver stand-ins answer to calls that are wrong."""

import pytest
from vgpu_program import run_program

pytestmark = pytest.mark.torch

LIBRARIES = """
import ctypes
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
runtime = ctypes.CDLL("libcudart.so.13")
driver = ctypes.CDLL("libcuda.so.1")
MIB, HUGE = 1 << 20, (1 << 64) - 1

def allocate(size=2 * MIB):
    address = c_void_p()
    assert runtime.cudaMalloc(byref(address), c_size_t(size)) == 0
    return address

def free_bytes():
    free, total = c_size_t(), c_size_t()
    runtime.cudaMemGetInfo(byref(free), byref(total))
    return free.value
"""


def test_copies_and_fills_outside_a_live_block_are_refused() -> None:
    answer = run_program(
        LIBRARIES
        + """
host = ctypes.create_string_buffer(64)
address = allocate()
copy = lambda to, source, size, kind: runtime.cudaMemcpy(to, source, c_size_t(size), kind)
answer["good"] = [copy(address, host, 64, 1), copy(host, address, 64, 2),
                  runtime.cudaMemset(address, 0, c_size_t(2 * MIB))]
end = c_void_p(address.value + 2 * MIB - 32)
answer["bad"] = [copy(end, host, 64, 1), copy(host, end, 64, 2), copy(address, host, HUGE, 1),
                 runtime.cudaMemset(address, 0, c_size_t(2 * MIB + 1)),
                 runtime.cudaMemset(address, 0, c_size_t(HUGE)),
                 runtime.cudaMemcpy2D(address, c_size_t(HUGE), host, c_size_t(HUGE), c_size_t(8),
                                      c_size_t(8), 1)]
runtime.cudaFree(address)
answer["bad"] += [copy(address, host, 64, 1), runtime.cudaFree(address)]
"""
    )
    assert answer["good"] == [0, 0, 0]
    assert answer["bad"] == [1] * 8


def test_sizes_that_no_machine_has_are_out_of_memory() -> None:
    answer = run_program(
        LIBRARIES
        + """
where = c_void_p(1)
answer["codes"] = [
    runtime.cudaMalloc(byref(where), c_size_t(HUGE)),
    runtime.cudaMallocAsync(byref(where), c_size_t(HUGE), None),
    runtime.cudaHostAlloc(byref(where), c_size_t(HUGE), 0),
    runtime.cudaHostAlloc(byref(where), c_size_t((1 << 63) - 1), 0),
]
answer["address"] = where.value
answer["zero"] = [runtime.cudaMalloc(byref(where), c_size_t(0)), where.value]
"""
    )
    assert answer["codes"] == [2, 2, 2, 2]
    assert answer["address"] is None
    assert answer["zero"] == [0, None]


def test_memory_is_given_back_by_its_own_call_alone_and_counted_once() -> None:
    answer = run_program(
        LIBRARIES
        + """
torch.zeros(1, device="cuda")
before = free_bytes()
reserved = c_uint64()
none = c_size_t(0)
assert driver.cuMemAddressReserve(byref(reserved), c_size_t(4 * MIB), none, none, none) == 0
answer["foreign"] = [runtime.cudaFree(c_void_p(reserved.value)), runtime.cudaFreeAsync(allocate(), None)]
pooled = c_void_p()
assert runtime.cudaMallocAsync(byref(pooled), c_size_t(4 * MIB), None) == 0
answer["pool"] = [runtime.cudaFree(pooled), runtime.cudaFree(pooled)]
answer["lost"] = before - free_bytes()
properties = (ctypes.c_uint32 * 8)(1, 0, 1, 0)
handle = c_uint64()
create = lambda size: driver.cuMemCreate(byref(handle), c_size_t(size), byref(properties), c_uint64(0))
answer["odd"] = [create(MIB), create(1 << 63)]
assert create(2 * MIB) == 0
place = lambda at: driver.cuMemMap(c_uint64(at), c_size_t(2 * MIB), none, handle, none)
answer["mapped"] = [place(reserved.value), place(reserved.value + MIB), place(4096)]
answer["in_use"] = driver.cuMemAddressFree(reserved, c_size_t(4 * MIB))
answer["end"] = [driver.cuMemUnmap(reserved, c_size_t(4 * MIB)), driver.cuMemRelease(handle),
                 driver.cuMemAddressFree(reserved, c_size_t(4 * MIB)), before - free_bytes()]
"""
    )
    assert answer["foreign"] == [1, 1]
    assert answer["pool"] == [0, 1]
    assert answer["lost"] == 2 << 20  # the block that cudaFreeAsync refused
    assert answer["odd"] == [1, 2]
    assert answer["mapped"] == [0, 1, 1]
    assert answer["in_use"] == 1
    assert answer["end"] == [0, 0, 0, 2 << 20]


def test_contexts_are_a_stack() -> None:
    answer = run_program(
        LIBRARIES
        + """
context, device = c_void_p(), c_int()
def current():
    assert driver.cuCtxGetDevice(byref(device)) == 0
    return device.value
runtime.cudaSetDevice(2)
driver.cuDevicePrimaryCtxRetain(byref(context), 5)
answer["pushed"] = [driver.cuCtxPushCurrent_v2(context), current()]
answer["popped"] = [driver.cuCtxPopCurrent_v2(byref(context)), current()]
answer["wrong"] = driver.cuCtxPushCurrent_v2(c_void_p(64))
answer["peer"] = [runtime.cudaDeviceEnablePeerAccess(3, 0), runtime.cudaDeviceEnablePeerAccess(2, 0)]
"""
    )
    assert answer["pushed"] == [0, 5]
    assert answer["popped"] == [0, 2]
    assert answer["wrong"] == 201
    assert answer["peer"] == [0, 101]


def test_launches_that_no_device_takes_are_refused() -> None:
    answer = run_program(
        LIBRARIES
        + """
function, module = c_void_p(), c_void_p()
driver.cuModuleLoadData(byref(module), b"")
driver.cuModuleGetFunction(byref(function), module, b"kernel")
launch = lambda grid, block, shared=0, stream=None: driver.cuLaunchKernel(
    function, *grid, *block, shared, stream, None, None)
one = (1, 1, 1)
answer["codes"] = [launch(one, one), launch((2**31 - 1, 1, 1), (1024, 1, 1)), launch((1, 65536, 1), one),
                   launch(one, (1024, 2, 1)), launch((0, 1, 1), one), launch(one, one, 228 << 10)]
stream = c_void_p()
runtime.cudaStreamCreate(byref(stream))
answer["stream"] = launch(one, one, 0, stream)
runtime.cudaStreamDestroy(stream)
answer["dead"] = launch(one, one, 0, stream)
answer["shared"] = [runtime.cudaFuncSetAttribute(None, 8, kib << 10) for kib in (227, 228)]
"""
    )
    assert answer["codes"] == [0, 0, 1, 1, 1, 1]
    assert [answer["stream"], answer["dead"]] == [0, 400]
    assert answer["shared"] == [0, 1]
