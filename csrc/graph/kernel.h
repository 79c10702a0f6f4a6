// What a kernel is, apart from when it runs: its name and launch shape, and for GEMMs the
// dimensions. Interned per graph, so that an op holds one id and replay can cost it anew.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "graph/op.h"

namespace prism {

struct Gemm {
  std::int64_t m = 0, n = 0, k = 0, batch = 0;  // m == 0: not a GEMM
  friend bool operator==(const Gemm&, const Gemm&) = default;
};

struct KernelShape {
  std::array<std::uint32_t, 3> grid{1, 1, 1};
  std::array<std::uint32_t, 3> block{1, 1, 1};
  std::uint32_t shared_bytes = 0;
  DataType dtype = DataType::none;  // GEMM operand type
  std::uint8_t transposes = 0;      // GEMM: bit 0 = A, bit 1 = B
  std::uint16_t reserved = 0;
  // Of a GEMM. Else m is 0 and n, k hold what the launch's arguments told of its work (elements, or
  // rows and width: cost/launch_counts.h); 0: not told.
  Gemm gemm;
  friend bool operator==(const KernelShape&, const KernelShape&) = default;
};

static_assert(sizeof(KernelShape) == 64 && std::has_unique_object_representations_v<KernelShape>);

}  // namespace prism
