#include "cost/cost.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "cost/gemm.h"
#include "cost/kernel_name.h"
#include "cost/timing_table.h"

namespace prism {
namespace {

// 32-bit integer results a clock and SM: CUDA C++ Programming Guide, arithmetic throughput, 8.0 to
// 10.0.
constexpr int integer_lanes = 64;

std::int64_t to_ns(double seconds) noexcept {
  const double ns = seconds * 1e9;
  if (!(ns > 0)) return 0;  // NaN too
  return ns >= static_cast<double>(max_duration_ns) ? max_duration_ns : std::llround(ns);
}

double efficiency(KernelFamily family, const DeviceProfile& profile) noexcept {
  const double share = profile.efficiency[static_cast<std::size_t>(family)];
  return share > 0 ? share : 1.0;
}

double seconds_at(double amount, double rate) noexcept {
  return amount > 0 && rate > 0 ? amount / rate : 0.0;
}

std::int64_t with_floor(double seconds, const DeviceProfile& profile) noexcept {
  return std::min(max_duration_ns, profile.kernel_floor_ns + to_ns(seconds));
}

bool is_gemm_name(std::string_view base) noexcept {
  constexpr std::string_view marks[] = {"gemm", "Gemm", "nvjet_", "splitKreduce"};
  return std::any_of(std::begin(marks), std::end(marks), [&](std::string_view mark) {
    return base.find(mark) != std::string_view::npos;
  });
}

}  // namespace

KernelCost kernel_cost(std::string_view text, const KernelShape& shape,
                       const DeviceProfile& profile) {
  if (const TimingRow* row = find_row(text, shape, profile)) {
    KernelCost cost{row->duration_ns, Provenance::table};
    cost.family =
        shape.gemm.m > 0 ? KernelFamily::gemm : kernel_work(KernelName(text), shape).family;
    return cost;
  }
  if (shape.gemm.m > 0) {
    const bool tf32 = text.find("tf32") != std::string_view::npos;
    return {with_floor(gemm_seconds(shape, tf32, profile), profile), Provenance::model,
            KernelFamily::gemm};
  }
  const KernelName name(text);
  const KernelWork work = kernel_work(name, shape);
  if (!work.known) {
    // A library's GEMM whose dimensions nobody recorded is still counted as one.
    const bool gemm = work.family == KernelFamily::unknown && is_gemm_name(name.base());
    return {profile.kernel_floor_ns, Provenance::unknown, gemm ? KernelFamily::gemm : work.family};
  }
  const double share = efficiency(work.family, profile);
  const double compute = seconds_at(work.operations, peak_flops(work.math, profile) * share);
  const double memory = seconds_at(work.bytes, profile.memory_bandwidth * share);
  const double integer_rate = double{integer_lanes} * profile.sms * profile.clock_khz * 1e3;
  const double integers = seconds_at(work.integers, integer_rate);
  return {with_floor(std::max({compute, memory, integers}), profile), Provenance::model,
          work.family, work.assumed};
}

std::int64_t copy_cost_ns(std::int64_t bytes, CopyDirection direction,
                          const DeviceProfile& profile) {
  const auto amount = static_cast<double>(std::max<std::int64_t>(bytes, 0));
  if (direction == CopyDirection::device_to_device) {  // read and written
    const double rate = profile.memory_bandwidth * efficiency(KernelFamily::copy, profile);
    return with_floor(seconds_at(2.0 * amount, rate), profile);
  }
  if (direction == CopyDirection::host_to_host) return 0;
  return with_floor(seconds_at(amount, profile.pcie_bandwidth), profile);
}

std::int64_t set_cost_ns(std::int64_t bytes, const DeviceProfile& profile) {
  const double rate = profile.memory_bandwidth * efficiency(KernelFamily::copy, profile);
  return with_floor(seconds_at(static_cast<double>(std::max<std::int64_t>(bytes, 0)), rate),
                    profile);
}

std::uint32_t host_cost_ns(OpKind kind, const HostCosts& costs) noexcept {
  if (is_communication(kind)) return costs.communication_ns;
  if (is_host_sync(kind)) return costs.sync_ns;
  switch (kind) {
    case OpKind::kernel:
    case OpKind::host_callback:
    case OpKind::graph_launch:
      return costs.launch_ns;
    case OpKind::copy:
    case OpKind::set:
      return costs.copy_ns;
    case OpKind::event_record:
    case OpKind::event_wait:
      return costs.event_ns;
    case OpKind::query:
      return costs.query_ns;
    case OpKind::allocate:
      return costs.allocate_ns;
    case OpKind::reserve:
    case OpKind::release:
      return costs.reserve_ns;
    default:
      return 0;
  }
}

}  // namespace prism
