// Time of a matrix product: tiles in waves over the SMs.
#pragma once

#include <cstdint>
#include <string_view>

#include "cost/device_profile.h"
#include "graph/kernel.h"

namespace prism {

double peak_flops(DataType dtype, const DeviceProfile& profile) noexcept;

// Without kernel_floor_ns. The output is cut into tiles of one of a few sizes, each tile (or a
// split of its k) runs on one SM at 1/sms of the peak, tiles run in waves, the output is written
// after:
//   compute = waves * 2 * tile_m * tile_n * ceil(k / splits) * sms / (peak * efficiency * tile's)
//   loads   = ((m*k + k*n) * size + partial sums, written and read, where k is split) * batch / bw
//   seconds = max(compute, loads) + m*n * size * batch / bw
// with bw = bandwidth * efficiency of copies. The best tile and split count, as a library's
// heuristic would choose.
double gemm_seconds(const KernelShape& shape, bool tf32, const DeviceProfile& profile) noexcept;

}  // namespace prism
