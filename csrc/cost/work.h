// How much a kernel does: operations and bytes to and from device memory, from its name and launch.
#pragma once

#include <cstdint>
#include <string_view>

#include "graph/kernel.h"

namespace prism {

class KernelName;

// Numbers index DeviceProfile::efficiency: append, never renumber.
enum class KernelFamily : std::uint8_t {
  unknown = 0,
  gemm = 1,
  attention = 2,
  elementwise = 3,
  reduction = 4,
  normalization = 5,
  softmax = 6,
  embedding = 7,  // gather, scatter, index
  optimizer = 8,
  copy = 9,  // copies, casts, concatenations, fills
  attention_backward = 10,
  sort = 11,    // sorts, scans, top-k, histograms
  random = 12,  // random numbers, dropout
};
inline constexpr int num_kernel_families = 13;

struct KernelWork {
  KernelFamily family = KernelFamily::unknown;
  DataType math = DataType::none;  // operand type of `operations`
  bool known = false;              // operations and bytes hold something
  bool assumed = false;            // a count that name and launch do not tell was assumed
  double operations = 0;           // multiply and add count as two
  double bytes = 0;
  double integers = 0;  // integer instructions of all threads: addresses of strided elements
  double elements = 0;  // of the output; rows times width where it has rows
};

// GEMMs are not handled here: their time depends on the device's tiles (gemm.h).
KernelWork kernel_work(const KernelName& name, const KernelShape& shape);
std::string_view name(KernelFamily family) noexcept;

}  // namespace prism
