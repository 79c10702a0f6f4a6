#include "cost/cost.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bind/bind.h"
#include "cost/gemm.h"
#include "cost/kernel_name.h"

namespace prism::bind {
namespace {

using Dims = std::array<std::uint32_t, 3>;

// Names come as text or as raw bytes (a recorded name need not be UTF-8).
std::string_view view(const nb::object& text) {
  if (nb::isinstance<nb::bytes>(text)) {
    const auto bytes = nb::borrow<nb::bytes>(text);
    return {static_cast<const char*>(bytes.data()), bytes.size()};
  }
  return nb::cast<std::string_view>(text);
}

void init_profile(nb::module_& m) {
  nb::class_<HostCosts>(m, "HostCosts")
      .def(nb::init<>())
      .def_rw("launch_ns", &HostCosts::launch_ns)
      .def_rw("copy_ns", &HostCosts::copy_ns)
      .def_rw("event_ns", &HostCosts::event_ns)
      .def_rw("sync_ns", &HostCosts::sync_ns)
      .def_rw("query_ns", &HostCosts::query_ns)
      .def_rw("communication_ns", &HostCosts::communication_ns)
      .def_rw("allocate_ns", &HostCosts::allocate_ns)
      .def_rw("reserve_ns", &HostCosts::reserve_ns);
  nb::class_<DeviceProfile>(m, "DeviceProfile")
      .def(nb::init<>())
      .def_rw("name", &DeviceProfile::name)
      .def_rw("memory_bytes", &DeviceProfile::memory_bytes)
      .def_rw("context_bytes", &DeviceProfile::context_bytes)
      .def_rw("sms", &DeviceProfile::sms)
      .def_rw("compute_major", &DeviceProfile::compute_major)
      .def_rw("compute_minor", &DeviceProfile::compute_minor)
      .def_rw("l2_bytes", &DeviceProfile::l2_bytes)
      .def_rw("shared_per_block_optin", &DeviceProfile::shared_per_block_optin)
      .def_rw("shared_per_sm", &DeviceProfile::shared_per_sm)
      .def_rw("clock_khz", &DeviceProfile::clock_khz)
      .def_rw("memory_clock_khz", &DeviceProfile::memory_clock_khz)
      .def_rw("memory_bus_bits", &DeviceProfile::memory_bus_bits)
      .def_rw("fp32_flops", &DeviceProfile::fp32_flops)
      .def_rw("tf32_flops", &DeviceProfile::tf32_flops)
      .def_rw("fp16_flops", &DeviceProfile::fp16_flops)
      .def_rw("bf16_flops", &DeviceProfile::bf16_flops)
      .def_rw("fp8_flops", &DeviceProfile::fp8_flops)
      .def_rw("fp64_flops", &DeviceProfile::fp64_flops)
      .def_rw("int8_flops", &DeviceProfile::int8_flops)
      .def_rw("memory_bandwidth", &DeviceProfile::memory_bandwidth)
      .def_rw("pcie_bandwidth", &DeviceProfile::pcie_bandwidth)
      .def_rw("kernel_floor_ns", &DeviceProfile::kernel_floor_ns)
      .def_rw("efficiency", &DeviceProfile::efficiency)
      .def_rw("host", &DeviceProfile::host)
      .def(
          "add_row",
          [](DeviceProfile& profile, std::string row_name, const KernelShape& shape,
             std::int64_t duration_ns) {
            profile.table.push_back({std::move(row_name), shape, duration_ns});
          },
          nb::arg("name"), nb::arg("shape"), nb::arg("duration_ns"))
      .def_prop_ro("rows", [](const DeviceProfile& profile) { return profile.table.size(); });
}

void init_shape(nb::module_& m) {
  nb::class_<KernelShape>(m, "KernelShape")
      .def(
          "__init__",
          [](KernelShape* self, const Dims& grid, const Dims& block, std::uint32_t shared_bytes,
             std::uint8_t dtype, std::uint8_t transposes, std::int64_t gemm_m, std::int64_t gemm_n,
             std::int64_t gemm_k, std::int64_t gemm_batch) {
            new (self) KernelShape{.grid = grid,
                                   .block = block,
                                   .shared_bytes = shared_bytes,
                                   .dtype = static_cast<DataType>(dtype),
                                   .transposes = transposes,
                                   .gemm = {gemm_m, gemm_n, gemm_k, gemm_batch}};
          },
          nb::kw_only(), nb::arg("grid") = Dims{1, 1, 1}, nb::arg("block") = Dims{1, 1, 1},
          nb::arg("shared_bytes") = 0, nb::arg("dtype") = static_cast<std::uint8_t>(DataType::none),
          nb::arg("transposes") = 0, nb::arg("m") = 0, nb::arg("n") = 0, nb::arg("k") = 0,
          nb::arg("batch") = 0)
      .def_ro("grid", &KernelShape::grid)
      .def_ro("block", &KernelShape::block);
}

}  // namespace

void init_cost(nb::module_& m) {
  init_profile(m);
  init_shape(m);
  m.def("kernel_families", [] {
    std::vector<std::string> names;
    for (int i = 0; i < num_kernel_families; ++i) {
      names.emplace_back(name(static_cast<KernelFamily>(i)));
    }
    return names;
  });
  nb::class_<KernelCost>(m, "KernelCost")
      .def_ro("duration_ns", &KernelCost::duration_ns)
      .def_ro("assumed", &KernelCost::assumed)
      .def_prop_ro("provenance", [](const KernelCost& cost) { return name(cost.provenance); })
      .def_prop_ro("family", [](const KernelCost& cost) { return name(cost.family); });
  nb::class_<KernelWork>(m, "KernelWork")
      .def_ro("known", &KernelWork::known)
      .def_ro("assumed", &KernelWork::assumed)
      .def_ro("operations", &KernelWork::operations)
      .def_ro("bytes", &KernelWork::bytes)
      .def_ro("integers", &KernelWork::integers)
      .def_ro("elements", &KernelWork::elements)
      .def_prop_ro("family", [](const KernelWork& work) { return name(work.family); });
  m.def(
      "kernel_cost",
      [](const nb::object& kernel, const KernelShape& shape, const DeviceProfile& profile) {
        return kernel_cost(view(kernel), shape, profile);
      },
      nb::arg("name"), nb::arg("shape"), nb::arg("profile"));
  m.def(
      "kernel_work",
      [](const nb::object& kernel, const KernelShape& shape) {
        return kernel_work(KernelName(view(kernel)), shape);
      },
      nb::arg("name"), nb::arg("shape"));
  m.def(
      "kernel_base",
      [](const nb::object& kernel) {
        const KernelName parsed(view(kernel));
        const std::string_view base = parsed.parsed() ? parsed.base() : std::string_view{};
        return nb::bytes(base.data(), base.size());
      },
      nb::arg("name"), "The kernel's identifier without scope and arguments; empty: not parsed.");
  m.def(
      "copy_cost_ns",
      [](std::int64_t bytes, std::uint8_t direction, const DeviceProfile& profile) {
        return copy_cost_ns(bytes, static_cast<CopyDirection>(direction), profile);
      },
      nb::arg("bytes"), nb::arg("direction"), nb::arg("profile"));
  m.def("set_cost_ns", &set_cost_ns, nb::arg("bytes"), nb::arg("profile"));
}

}  // namespace prism::bind
