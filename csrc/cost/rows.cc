// Kernels that work row by row: reductions, normalisation, softmax. Rows come from the grid; the
// width of a row mostly stands in the launch's arguments alone. Where it was not told, a width is
// assumed and the work says so.
#include "cost/rows.h"

#include <algorithm>
#include <string_view>

namespace prism {
namespace {

// A usual hidden size. Only for launches whose arguments nobody read.
constexpr double assumed_width = 4096;

KernelWork rows_work(KernelFamily family, double rows, double width, double bytes, bool assumed) {
  KernelWork work{.family = family, .known = true, .assumed = assumed};
  work.elements = rows * width;
  work.bytes = work.elements * bytes;
  return work;
}

}  // namespace

// reduce_kernel<threads, outputs a thread, ReduceOp<T, ops, index, out, ...>>. Told: inputs and
// outputs in all. Else a thread is taken to read 16 elements, the least for which torch splits a
// reduction over blocks (Reduce.cuh).
KernelWork reduce_work(const Launch& launch) {
  const KernelName& name = launch.name;
  const NameNode* op = name.argument(2);
  const NameNode* type = op != nullptr ? name.argument(*op, 0) : nullptr;
  const double value = type != nullptr ? value_bytes(name, *type, 4) : 4;
  KernelWork work{.family = KernelFamily::reduction, .known = true};
  if (launch.told() > 0) {
    work.elements = launch.told_second();
    work.bytes = (launch.told() + launch.told_second()) * value;
    return work;
  }
  work.assumed = true;
  work.elements = launch.blocks;
  work.bytes = launch.threads * 16 * value;
  return work;
}

// A row a block; T of the first argument that is a type. Told: the width.
KernelWork norm_forward_work(const Launch& launch) {
  const double width = launch.told() > 0 ? launch.told() : assumed_width;
  return rows_work(KernelFamily::normalization, launch.blocks, width, 2 * value_bytes(launch, 2),
                   launch.told() <= 0);
}

KernelWork norm_moments_work(const Launch& launch) {
  const double width = launch.told() > 0 ? launch.told() : assumed_width;
  return rows_work(KernelFamily::normalization, launch.blocks, width, value_bytes(launch, 2),
                   launch.told() <= 0);
}

// Reads the gradient and the input, writes the input's gradient.
KernelWork norm_backward_work(const Launch& launch) {
  const double width = launch.told() > 0 ? launch.told() : assumed_width;
  return rows_work(KernelFamily::normalization, launch.blocks, width, 3 * value_bytes(launch, 2),
                   launch.told() <= 0);
}

// Gradients of weight and bias: columns in the grid, 32 a block; told: rows, columns. Reads the
// gradient and the input.
KernelWork norm_weight_work(const Launch& launch) {
  const bool told = launch.told() > 0 && launch.told_second() > 0;
  const double rows = told ? launch.told() : assumed_width;
  const double columns = told ? launch.told_second() : 32.0 * launch.shape.grid[0];
  return rows_work(KernelFamily::normalization, rows, columns, 2 * value_bytes(launch, 2), !told);
}

// cunn_SoftMax*: a row a block; told: the width. Else what fills the block: it has one thread for
// each vector of ILP elements of the row, 1,024 at most.
KernelWork softmax_row_work(const Launch& launch) {
  const KernelName& name = launch.name;
  const bool backward = name.base().find("Backward") != std::string_view::npos;
  const double value = value_bytes(launch, 4);
  double width = launch.told();
  if (width <= 0) {
    double vector = 4;
    for (const NameId id : name.parsed() ? name.root().arguments : std::vector<NameId>{}) {
      if (name[id].kind == NameNode::Kind::literal) {
        vector = static_cast<double>(std::clamp<std::int64_t>(name[id].value, 1, 16));
      }
    }
    width = launch.threads / std::max(1.0, launch.blocks) * vector;
  }
  return rows_work(KernelFamily::softmax, launch.blocks, width, (backward ? 3 : 2) * value,
                   launch.told() <= 0);
}

// softmax_warp_{forward,backward}<in, out, accumulator, log2 of the width, ...>: a warp does one
// row, or two of at most 128 elements. Told: rows, width. Megatron's fused
// scaled_*_masked_softmax_warp_* kernels are built alike.
KernelWork softmax_warp_work(const Launch& launch) {
  const KernelName& name = launch.name;
  const bool backward = name.base().find("backward") != std::string_view::npos;
  double width =
      static_cast<double>(std::int64_t{1} << std::clamp<std::int64_t>(name.number(3, 10), 0, 20));
  double rows = launch.blocks * launch.shape.block[1] * (width <= 128 ? 2 : 1);
  if (launch.told() > 0 && launch.told_second() > 0) {
    rows = launch.told();
    width = launch.told_second();
  }
  return rows_work(KernelFamily::softmax, rows, width, (backward ? 3 : 2) * value_bytes(launch, 2),
                   false);
}

}  // namespace prism
