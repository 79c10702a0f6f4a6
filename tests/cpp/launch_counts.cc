#include "cost/launch_counts.h"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "cost/kernel_name.h"
#include "cost/work.h"

using namespace prism;

namespace {

// Names as torch 2.14.1 registers them.
constexpr const char* add =
    "_ZN2at6native29vectorized_elementwise_kernelILi8ENS0_15CUDAFunctor_"
    "addIN3c108BFloat16EEESt5arrayIPcLm"
    "3EELb0EEEviT0_T1_";
constexpr const char* maximum =
    "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_6MaxOpsIfEEjfLi4ELi4EEEEEvT1_";
constexpr const char* zero =
    "_ZN2at6native50_GLOBAL__N__637ba612_17_ForeachUnaryOp_cu_77fe623d25multi_tensor_apply_"
    "kernelINS1_"
    "18TensorListMetadataILi1EEENS1_11ZeroFunctorIfLi1ELi1ELi0EEEJEEEvT_T0_DpT1_";
constexpr const char* cat =
    "_ZN2at6native40_GLOBAL__N__f1f992fe_8_Shape_cu_49f7391c19CatArrayBatchedCopyINS1_"
    "10OpaqueTypeILj2EEEj"
    "Li4ELi64ELi64EEEvPT_NS1_25CatArrInputTensorMetadataIS5_T0_XT2_EXT3_EEENS1_"
    "16TensorSizeStrideIS8_Lj4E"
    "EEiS8_";
constexpr const char* warp_softmax =
    "_ZN43_GLOBAL__N__f71e7945_10_SoftMax_cu_9f978f6320softmax_warp_"
    "forwardIfffLi10ELb0ELb0ELi32EEEvPT0_PK"
    "T_iiiPKbib";

KernelShape launch(std::array<std::uint32_t, 3> grid, std::array<std::uint32_t, 3> block) {
  return {.grid = grid, .block = block, .gemm = {}};
}

template <class T>
void put(std::vector<std::byte>& memory, std::size_t offset, T value) {
  std::memcpy(memory.data() + offset, &value, sizeof value);
}

}  // namespace

TEST_CASE("counts come from the parameters that hold them") {
  const std::int32_t n = 12345, stride = 7, width = 1000, rows = 50;
  const void* const arguments[] = {&n, &n, &n};
  KernelShape shape = launch({13, 1, 1}, {128, 1, 1});
  LaunchCounts(add).read(arguments, shape);
  CHECK(shape.gemm == Gemm{0, 12345, 0, 0});

  const void* const softmax[] = {nullptr, nullptr, &rows, &stride, &width, nullptr, &n, &n};
  LaunchCounts(warp_softmax).read(softmax, shape);
  CHECK(shape.gemm == Gemm{0, 50, 1000, 0});
}

TEST_CASE("a window's elements are a product of two parameters") {
  const std::int64_t n = 9000, height = 3, width = 5;
  const void* const arguments[] = {&n, nullptr, &n, &n, &height, &width};
  KernelShape shape = launch({1000, 1, 1}, {128, 1, 1});
  constexpr const char* im2col = "_ZN2at6native13im2col_kernelIfEEvlPKT_llllllllllllPS2_";
  LaunchCounts(im2col).read(arguments, shape);
  CHECK(shape.gemm == Gemm{0, 15, 0, 0});
  const KernelWork work = kernel_work(KernelName(im2col), shape);
  CHECK(work.bytes == 128000.0 * (15 + 1) * 4);
  CHECK_FALSE(work.assumed);
}

TEST_CASE("negative and missing counts are none") {
  const std::int32_t n = -3;
  const void* const arguments[] = {&n};
  KernelShape shape = launch({13, 1, 1}, {128, 1, 1});
  LaunchCounts(add).read(arguments, shape);
  CHECK(shape.gemm == Gemm{});
  LaunchCounts(add).read(nullptr, shape);
  LaunchCounts().read(arguments, shape);
  CHECK(shape.gemm == Gemm{});
  CHECK_FALSE(LaunchCounts().tells());
  CHECK_FALSE(LaunchCounts("my_kernel").tells());
  CHECK_FALSE(LaunchCounts("_ZN2at6native9other_fnIiEEvi").tells());
  // Spelled without parameters: nothing says where the count is.
  CHECK_FALSE(LaunchCounts("at::native::vectorized_elementwise_kernel<8, F, A>").tells());
}

TEST_CASE("a reduction is believed only where it repeats the launch") {
  for (const std::size_t offset : {4u, 8u, 16u}) {  // after operation and identity
    std::vector<std::byte> operation(256, std::byte{0x55});
    const std::int32_t config[14] = {4, 16032, 4096, 1, 1, 3, 0, 0, 0, 0, 0, 32, 16, 512};
    for (std::size_t i = 0; i < 14; ++i) put(operation, offset + 4 * i, config[i]);
    const void* const arguments[] = {operation.data()};
    KernelShape shape = launch({4096, 3, 1}, {32, 16, 1});
    LaunchCounts(maximum).read(arguments, shape);
    CHECK(shape.gemm == Gemm{0, std::int64_t{16032} * 4096, 4096, 0});
    KernelShape other = launch({4096, 2, 1}, {32, 16, 1});
    LaunchCounts(maximum).read(arguments, other);
    CHECK(other.gemm == Gemm{});
  }
}

TEST_CASE("a concatenation is believed only where starts are running sums") {
  std::vector<std::byte> inputs(64 * (8 + 4 + 4 + 4) + 1024);
  const std::uint32_t extents[] = {5, 7, 9};
  std::uint32_t start = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    put(inputs, 64 * 8 + 4 * i, start);
    put(inputs, 64 * 12 + 4 * i, extents[i]);
    put(inputs, 64 * 16 + 4 * i, extents[i] * 100);
    start += extents[i];
  }
  const void* const arguments[] = {nullptr, inputs.data(), nullptr, nullptr, nullptr};
  KernelShape shape = launch({264, 3, 1}, {512, 1, 1});
  const LaunchCounts counts(cat);
  counts.read(arguments, shape);
  CHECK(shape.gemm == Gemm{0, 2100, 0, 0});
  put(inputs, 64 * 8 + 4, std::uint32_t{6});
  KernelShape broken = launch({264, 3, 1}, {512, 1, 1});
  counts.read(arguments, broken);
  CHECK(broken.gemm == Gemm{});
  KernelShape many = launch({264, 65, 1}, {512, 1, 1});
  counts.read(arguments, many);
  CHECK(many.gemm == Gemm{});
}

TEST_CASE("tensor lists count each tensor to its end") {
  constexpr std::size_t room = 770, most_blocks = 2240;
  std::vector<std::byte> metadata(room * 16 + most_blocks * 6 + 64);
  const std::int64_t sizes[] = {10, 65536 * 2 + 1, 65536};
  const std::uint16_t tensors[] = {0, 1, 1, 1, 2};
  const std::int32_t chunks[] = {0, 0, 1, 2, 0};
  for (std::size_t i = 0; i < 3; ++i) put(metadata, room * 8 + 8 * i, sizes[i]);
  for (std::size_t i = 0; i < 5; ++i) {
    put(metadata, room * 16 + 2 * i, tensors[i]);
    put(metadata, room * 16 + most_blocks * 2 + 4 * i, chunks[i]);
  }
  const void* const arguments[] = {metadata.data(), nullptr};
  const LaunchCounts counts(zero);
  KernelShape shape = launch({5, 1, 1}, {512, 1, 1});
  counts.read(arguments, shape);
  CHECK(shape.gemm.n == 10 + 65536 * 2 + 1 + 65536);
  put(metadata, room * 16 + most_blocks * 2 + 4 * 3, std::int32_t{3});  // past the tensor's end
  KernelShape broken = launch({5, 1, 1}, {512, 1, 1});
  counts.read(arguments, broken);
  CHECK(broken.gemm == Gemm{});
  KernelShape many = launch({2241, 1, 1}, {512, 1, 1});
  counts.read(arguments, many);
  CHECK(many.gemm == Gemm{});
}
