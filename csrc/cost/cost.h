// Kernel or GEMM + device profile -> duration and where that duration comes from: a timing table
// first (rows recorded on a real device), else a roofline with per-family efficiency, else unknown.
#pragma once

#include <cstdint>
#include <string_view>

#include "cost/device_profile.h"
#include "cost/work.h"
#include "graph/kernel.h"
#include "graph/op.h"

namespace prism {

struct KernelCost {
  std::int64_t duration_ns = 0;
  Provenance provenance = Provenance::unknown;
  KernelFamily family = KernelFamily::unknown;
  bool assumed = false;  // the model had to assume a count that the launch does not tell
};

// No duration is longer: sums of durations stay inside 64 bits.
inline constexpr std::int64_t max_duration_ns = std::int64_t{1} << 53;

// duration = kernel_floor_ns + max(operations / (peak * efficiency), bytes / (bandwidth *
// efficiency), integers / (sms * clock * 64)); GEMMs: gemm.h. name: mangled, as c++filt spells it,
// or plain. Pure; may be slow (parses names): callers cache by kernel id.
KernelCost kernel_cost(std::string_view name, const KernelShape& shape,
                       const DeviceProfile& profile);
std::int64_t copy_cost_ns(std::int64_t bytes, CopyDirection direction,
                          const DeviceProfile& profile);
std::int64_t set_cost_ns(std::int64_t bytes, const DeviceProfile& profile);
// Host time of the call behind an op of this kind; 0 for kinds that no call of the program makes.
std::uint32_t host_cost_ns(OpKind kind, const HostCosts& costs) noexcept;

}  // namespace prism
