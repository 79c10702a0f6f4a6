#include "cost/gemm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "cost/work.h"

namespace prism {
namespace {

// Share of the large tile's rate that a smaller tile reaches, because it loads more bytes for each
// operation. Assumption, not measured.
struct Tile {
  std::int64_t m, n;
  double efficiency;
};
constexpr std::array tiles = {
    Tile{256, 128, 1.0}, Tile{128, 256, 1.0}, Tile{192, 128, 1.0}, Tile{128, 192, 1.0},
    Tile{128, 128, 1.0}, Tile{256, 64, 0.9},  Tile{64, 256, 0.9},  Tile{128, 64, 0.85},
    Tile{64, 128, 0.85}, Tile{64, 64, 0.7},   Tile{32, 64, 0.4},   Tile{64, 32, 0.4},
};
constexpr std::array<std::int64_t, 6> splits = {1, 2, 4, 8, 16, 32};
// A split is charged for at least this much of k, so that more k never costs less. Assumption.
constexpr double shortest_split = 256;

double ceil_divide(double a, double b) noexcept { return std::ceil(a / b); }

}  // namespace

double peak_flops(DataType dtype, const DeviceProfile& profile) noexcept {
  switch (dtype) {
    case DataType::float16:
      return profile.fp16_flops;
    case DataType::bfloat16:
      return profile.bf16_flops;
    case DataType::float64:
      return profile.fp64_flops;
    case DataType::float8e4m3:
    case DataType::float8e5m2:
      return profile.fp8_flops;
    case DataType::int8:
    case DataType::uint8:
      return profile.int8_flops;
    default:
      return profile.fp32_flops;
  }
}

double gemm_seconds(const KernelShape& shape, bool tf32, const DeviceProfile& profile) noexcept {
  const auto m = static_cast<double>(std::max<std::int64_t>(shape.gemm.m, 0));
  const auto n = static_cast<double>(std::max<std::int64_t>(shape.gemm.n, 0));
  const auto k = static_cast<double>(std::max<std::int64_t>(shape.gemm.k, 0));
  const auto batch = static_cast<double>(std::max<std::int64_t>(shape.gemm.batch, 1));
  const auto size = static_cast<double>(size_of(shape.dtype));
  const double sms = std::max(profile.sms, 1);
  const double peak =
      tf32 && profile.tf32_flops > 0 ? profile.tf32_flops : peak_flops(shape.dtype, profile);
  const double rate = peak * profile.efficiency[static_cast<std::size_t>(KernelFamily::gemm)];
  const double bandwidth =
      profile.memory_bandwidth * profile.efficiency[static_cast<std::size_t>(KernelFamily::copy)];
  const double operands = (m * k + k * n) * batch * size / bandwidth;
  const double output = m * n * batch * size / bandwidth;
  if (!(rate > 0) || m * n * k == 0) return operands + output;

  double best = std::numeric_limits<double>::infinity();
  for (const Tile& tile : tiles) {
    const double blocks = ceil_divide(m, static_cast<double>(tile.m)) *
                          ceil_divide(n, static_cast<double>(tile.n)) * batch;
    const double tile_operations = 2.0 * static_cast<double>(tile.m * tile.n);
    for (const std::int64_t split : splits) {
      const auto parts = static_cast<double>(split);
      double depth = ceil_divide(k, parts);
      double loads = operands;
      if (split > 1) {
        depth = std::max(depth, shortest_split);
        loads += 2.0 * parts * m * n * batch * 4.0 / bandwidth;  // fp32 partial sums, and back
      }
      const double waves = ceil_divide(blocks * parts, sms);
      const double compute = waves * tile_operations * depth * sms / (rate * tile.efficiency);
      best = std::min(best, std::max(compute, loads));
    }
  }
  return best + output;
}

}  // namespace prism
