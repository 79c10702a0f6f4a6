// Kernel or GEMM + device profile -> duration and where that duration comes from: a timing table
// first (rows recorded on a real device), else a roofline with per-family efficiency, else unknown.
#pragma once

#include <cstdint>
#include <string_view>

#include "cost/device_profile.h"
#include "graph/kernel.h"
#include "graph/op.h"

namespace prism {

enum class KernelFamily : std::uint8_t {
  unknown,
  gemm,
  attention,
  elementwise,
  reduction,
  normalization,
  softmax,
  embedding,
  optimizer,
  copy,
};

struct KernelCost {
  std::int64_t duration_ns = 0;
  Provenance provenance = Provenance::unknown;
  KernelFamily family = KernelFamily::unknown;
};

// name: the mangled or plain kernel name. Pure; may be slow (parses names): callers cache by kernel
// id.
KernelCost kernel_cost(std::string_view name, const KernelShape& shape,
                       const DeviceProfile& profile);
std::int64_t copy_cost_ns(std::int64_t bytes, CopyDirection direction,
                          const DeviceProfile& profile);
std::int64_t set_cost_ns(std::int64_t bytes, const DeviceProfile& profile);
std::string_view name(KernelFamily family) noexcept;

}  // namespace prism
