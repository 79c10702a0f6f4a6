#include "cost/cost.h"

#include <doctest/doctest.h>

#include <cmath>
#include <set>
#include <string>

using namespace prism;

namespace {

// Round figures: 100 SMs, 1 GB/ms, 100 TFLOP/s, so that times can be worked out by hand.
DeviceProfile round_profile() {
  DeviceProfile profile;
  profile.name = "round";
  profile.sms = 100;
  profile.fp32_flops = 10e12;
  profile.tf32_flops = 50e12;
  profile.fp16_flops = profile.bf16_flops = 100e12;
  profile.fp64_flops = 5e12;
  profile.memory_bandwidth = 1e12;
  profile.pcie_bandwidth = 50e9;
  profile.kernel_floor_ns = 1000;
  profile.efficiency.fill(1.0);
  return profile;
}

KernelShape launch(std::uint32_t grid, std::uint32_t block) {
  return {.grid = {grid, 1, 1}, .block = {block, 1, 1}, .gemm = {}};
}

KernelShape gemm(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch = 1) {
  return {.dtype = DataType::bfloat16, .gemm = {m, n, k, batch}};
}

constexpr std::string_view add_bf16 =
    "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, "
    "std::array<char*, 3ul>, false>(int, at::native::CUDAFunctor_add<c10::BFloat16>, "
    "std::array<char*, 3ul>)";

}  // namespace

TEST_CASE("an elementwise kernel takes floor plus bytes over bandwidth") {
  const DeviceProfile profile = round_profile();
  // 1,000 blocks of 128 threads of 8 elements, three tensors of 2 bytes: 6,144,000 bytes at 1 B/ps.
  const KernelCost cost = kernel_cost(add_bf16, launch(1000, 128), profile);
  CHECK(cost.duration_ns == 1000 + 6144);
  CHECK(cost.provenance == Provenance::model);
  CHECK(cost.family == KernelFamily::elementwise);
  CHECK_FALSE(cost.assumed);

  DeviceProfile half = profile;
  half.efficiency[static_cast<std::size_t>(KernelFamily::elementwise)] = 0.5;
  CHECK(kernel_cost(add_bf16, launch(1000, 128), half).duration_ns == 1000 + 2 * 6144);
}

TEST_CASE("strided elements take their address arithmetic where that is longer") {
  DeviceProfile profile = round_profile();
  constexpr std::string_view strided =
      "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::"
      "CUDAFunctor_add<c10::BFloat16> >(at::TensorIteratorBase&, at::native::CUDAFunctor_add<"
      "c10::BFloat16> const&)::{lambda(int)#1}>(int, F)";
  // 512,000 elements: 3,072,000 bytes of 3 tensors at 1,000 a ns, or 44 instructions at 6,400 a ns.
  CHECK(kernel_cost(strided, launch(1000, 128), profile).duration_ns == 1000 + 3072);
  profile.clock_khz = 1'000'000;
  CHECK(kernel_cost(strided, launch(1000, 128), profile).duration_ns == 1000 + 3520);
}

TEST_CASE("a product that fills the waves takes its operations at the peak") {
  const DeviceProfile profile = round_profile();
  // 10 x 10 tiles of 256 x 128 on 100 SMs: one full wave. 2 m n k / peak = 1,342,177,280,000 /
  // 1e14.
  const KernelCost cost = kernel_cost("gemm", gemm(2560, 1280, 2048), profile);
  CHECK(cost.duration_ns == 1000 + 140771);
  CHECK(cost.family == KernelFamily::gemm);
  CHECK(cost.provenance == Provenance::model);
  // One column of tiles more needs a second wave, of tiles of the best size.
  CHECK(kernel_cost("gemm", gemm(2560, 1281, 2048), profile).duration_ns > 1000 + 140771);
}

TEST_CASE("a thin product takes its bytes") {
  const DeviceProfile profile = round_profile();
  // m k + k n + m n of 2 bytes: (8192 * 8192 + 2 * 8192) * 2. With k = 1, eleven waves of
  // 128 x 128 tiles take 360.4 ns, then 33,554.4 ns of output.
  CHECK(kernel_cost("gemm", gemm(8192, 1, 8192), profile).duration_ns >= 1000 + 134250);
  CHECK(kernel_cost("gemm", gemm(4096, 4096, 1), profile).duration_ns == 1000 + 33915);
}

TEST_CASE("tf32 products run at that rate where the name says so") {
  const DeviceProfile profile = round_profile();
  KernelShape shape = gemm(2560, 1280, 2048);
  shape.dtype = DataType::float32;
  CHECK(kernel_cost("gemm", shape, profile).duration_ns == 1000 + 1355284);
  CHECK(kernel_cost("gemm_tf32", shape, profile).duration_ns == 1000 + 281543);
}

TEST_CASE("a row of the table wins over the model") {
  DeviceProfile profile = round_profile();
  profile.table.push_back({"gemm", gemm(128, 128, 128), 77});
  profile.table.push_back({std::string(add_bf16), launch(1000, 128), 55});
  const KernelCost table = kernel_cost("gemm", gemm(128, 128, 128), profile);
  CHECK(table.duration_ns == 77);
  CHECK(table.provenance == Provenance::table);
  CHECK(table.family == KernelFamily::gemm);
  CHECK(kernel_cost("gemm", gemm(128, 128, 129), profile).provenance == Provenance::model);
  CHECK(kernel_cost("gemm_batched", gemm(128, 128, 128), profile).provenance == Provenance::model);
  const KernelCost add = kernel_cost(add_bf16, launch(1000, 128), profile);
  CHECK(add.duration_ns == 55);
  CHECK(add.family == KernelFamily::elementwise);
  CHECK(kernel_cost(add_bf16, launch(1001, 128), profile).provenance == Provenance::model);
}

TEST_CASE("a product has the row of its dimensions, whichever call and transposes") {
  DeviceProfile profile = round_profile();
  profile.table.push_back({"product", gemm(128, 256, 64, 2), 88});
  KernelShape transposed = gemm(128, 256, 64, 2);
  transposed.transposes = 1;
  for (const std::string_view name : {"gemm_batched", "gemm_lt:gelu", "ampere_fp16_gemm"}) {
    const KernelCost cost = kernel_cost(name, transposed, profile);
    CHECK(cost.duration_ns == 88);
    CHECK(cost.provenance == Provenance::table);
  }
  CHECK(kernel_cost("gemm", gemm(256, 128, 64, 2), profile).provenance == Provenance::model);
  CHECK(kernel_cost("gemm:tf32", gemm(128, 256, 64, 2), profile).provenance == Provenance::model);
  KernelShape other_type = gemm(128, 256, 64, 2);
  other_type.dtype = DataType::float16;
  CHECK(kernel_cost("gemm", other_type, profile).provenance == Provenance::model);

  profile.table.push_back({"product:tf32", gemm(128, 256, 64, 2), 99});
  CHECK(kernel_cost("gemm:tf32", gemm(128, 256, 64, 2), profile).duration_ns == 99);
  profile.table.push_back({"gemm", transposed, 77});  // the row of the call itself comes first
  CHECK(kernel_cost("gemm", transposed, profile).duration_ns == 77);
}

TEST_CASE("a row without counts is of all launches of its grid and block, by either name") {
  constexpr std::string_view mangled =
      "_ZN2at6native29vectorized_elementwise_kernelILi4EfEEviT0_PS2_";
  constexpr std::string_view spelled =
      "void at::native::vectorized_elementwise_kernel<4, float>(int, float, float*)";
  DeviceProfile profile = round_profile();
  profile.table.push_back({std::string(spelled), launch(10, 128), 66});
  KernelShape told = launch(10, 128);
  told.shared_bytes = 48;
  told.gemm.n = 5120;
  for (const std::string_view name : {mangled, spelled}) {
    CHECK(kernel_cost(name, told, profile).duration_ns == 66);
    CHECK(kernel_cost(name, launch(11, 128), profile).provenance != Provenance::table);
    CHECK(kernel_cost(name, launch(10, 64), profile).provenance != Provenance::table);
  }
  CHECK(kernel_cost("_ZN2at6native", told, profile).provenance == Provenance::unknown);
  KernelShape counted = told;
  counted.gemm.n = 6;
  profile.table.push_back({std::string(mangled), counted, 44});  // with counts: of these alone
  CHECK(kernel_cost(mangled, counted, profile).duration_ns == 44);
  CHECK(kernel_cost(mangled, told, profile).duration_ns == 66);
}

TEST_CASE("what no rule knows stays unknown and takes the floor") {
  const DeviceProfile profile = round_profile();
  for (const std::string_view text : {"", "triton_poi_fused_add_0", "_ZN3foo3barEv", "_Z", "_ZN",
                                      "(((((", "void my_kernel<4>(float*)"}) {
    const KernelCost cost = kernel_cost(text, launch(1u << 31, 1024), profile);
    CHECK(cost.provenance == Provenance::unknown);
    CHECK(cost.family == KernelFamily::unknown);
    CHECK(cost.duration_ns == 1000);
  }
  // A library's GEMM without dimensions is named as one, but nobody knows how long it takes.
  const KernelCost cost =
      kernel_cost("ampere_fp16_s16816gemm_fp16_128x128_nn", launch(8, 128), profile);
  CHECK(cost.family == KernelFamily::gemm);
  CHECK(cost.provenance == Provenance::unknown);
}

TEST_CASE("durations stay in range whatever the launch") {
  const DeviceProfile profile = round_profile();
  const std::uint32_t most = 0xffffffffu;
  const KernelShape huge{.grid = {most, most, most}, .block = {most, most, most}, .gemm = {}};
  CHECK(kernel_cost(add_bf16, huge, profile).duration_ns == max_duration_ns);
  CHECK(kernel_cost(add_bf16, launch(0, 128), profile).duration_ns == 1000);
  CHECK(
      kernel_cost("gemm", gemm(INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX), profile).duration_ns ==
      max_duration_ns);
  CHECK(kernel_cost("gemm", gemm(1, -5, -7, -1), profile).duration_ns == 1000);
  CHECK(kernel_cost(add_bf16, launch(1, 1), DeviceProfile{}).duration_ns == 0);
}

TEST_CASE("copies and sets take their bytes at the bandwidth they use") {
  const DeviceProfile profile = round_profile();
  CHECK(copy_cost_ns(1'000'000, CopyDirection::device_to_device, profile) == 1000 + 2000);
  CHECK(copy_cost_ns(1'000'000, CopyDirection::host_to_device, profile) == 1000 + 20000);
  CHECK(copy_cost_ns(1'000'000, CopyDirection::device_to_host, profile) == 1000 + 20000);
  CHECK(copy_cost_ns(1'000'000, CopyDirection::host_to_host, profile) == 0);
  CHECK(copy_cost_ns(-5, CopyDirection::host_to_device, profile) == 1000);
  CHECK(copy_cost_ns(INT64_MAX, CopyDirection::host_to_device, profile) == max_duration_ns);
  CHECK(set_cost_ns(1'000'000, profile) == 1000 + 1000);
}

TEST_CASE("every family has a name of its own") {
  std::set<std::string_view> names;
  for (int i = 0; i < num_kernel_families; ++i) names.insert(name(static_cast<KernelFamily>(i)));
  CHECK(names.size() == num_kernel_families);
  CHECK(name(static_cast<KernelFamily>(num_kernel_families)) == "unknown");
}

TEST_CASE("sharded copies, pools and scalers are known by the names torch registers") {
  const DeviceProfile profile = round_profile();
  const auto cost = [&](std::string_view name) {
    return kernel_cost(name, launch(1000, 128), profile);
  };
  // 128,000 threads write 16 bytes each: 2,048,000 at 1,000 a ns, read as bytes or as bfloat16.
  const KernelCost cat = cost(
      "_ZN2at6native6detail21chunk_cat_cuda_kernelIfN3c108BFloat16EEEvPPT0_PT_PlSA_SA_SA_SA_SA_"
      "lll");
  CHECK(cat.duration_ns == 1000 + 3072);
  CHECK(cat.family == KernelFamily::copy);
  CHECK(cat.assumed);
  const KernelCost split = cost(
      "_ZN2at6native6detail51split_with_sizes_copy_out_contiguous_no_cast_kernelEPPcS3_PlS4_S4_ll");
  CHECK(split.duration_ns == 1000 + 4096);
  CHECK(split.assumed);
  const KernelCost pool = cost(
      "_ZN2at6native52_GLOBAL__N__3235d1b4_19_DilatedMaxPool2d_cu_6258b57421max_pool_forward_"
      "nchwIdiEEvT0_PKT_llliiiiiiiiiiPS4_Pl");
  CHECK(pool.duration_ns == 1000 + 3072);  // two doubles and an index
  CHECK(pool.family == KernelFamily::elementwise);
  CHECK(cost("_ZN2at6native13im2col_kernelIdEEvlPKT_llllllllllllPS2_").duration_ns == 1000 + 2048);
  CHECK(cost("_ZN2at6native13col2im_kernelIffEEvlPKT_llllllllllllPS2_").provenance ==
        Provenance::model);
  CHECK(cost("_ZN2at6native28amp_update_scale_cuda_kernelEPfPiPKfddi").provenance ==
        Provenance::model);
}
