// What the families' models read: a parsed name, the launch, and the counts that both tell.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cost/kernel_name.h"
#include "cost/work.h"
#include "graph/kernel.h"

namespace prism {

struct Launch {
  const KernelName& name;
  const KernelShape& shape;
  double blocks;   // of the grid
  double threads;  // of all blocks

  Launch(const KernelName& n, const KernelShape& s)
      : name(n),
        shape(s),
        blocks(double{1} * s.grid[0] * s.grid[1] * s.grid[2]),
        threads(blocks * s.block[0] * s.block[1] * s.block[2]) {}

  // Counts that the launch's arguments told (KernelShape::gemm where m is 0); 0: not told.
  double told() const noexcept { return positive(shape.gemm.n); }
  double told_second() const noexcept { return positive(shape.gemm.k); }

 private:
  static double positive(std::int64_t count) noexcept {
    return static_cast<double>(std::max<std::int64_t>(count, 0));
  }
};

// Bytes of the type that a node computes on: its own, else of the first of its arguments or scopes
// that is a floating-point or opaque type, else of the first integer; `otherwise` where none is.
double value_bytes(const KernelName& name, const NameNode& node, double otherwise);
double value_bytes(const Launch& launch, double otherwise);

KernelWork elementwise_work(const Launch& launch);
KernelWork legacy_elementwise_work(const Launch& launch);
KernelWork random_work(const Launch& launch);
KernelWork multi_tensor_work(const Launch& launch);
KernelWork reduce_work(const Launch& launch);
KernelWork flash_forward_work(const Launch& launch);
KernelWork flash_backward_work(const Launch& launch);
KernelWork flash_aside_work(const Launch& launch);
KernelWork cutlass_attention_work(const Launch& launch);

}  // namespace prism
