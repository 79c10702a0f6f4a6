#include "graph/statistics.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace prism {
namespace {

constexpr std::int64_t ceiling = std::numeric_limits<std::int64_t>::max();

void add(std::int64_t& sum, std::int64_t value, std::int64_t times) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(value, times, &product) ||
      __builtin_add_overflow(sum, product, &sum)) {
    sum = ceiling;
  }
}

bool takes_device_time(OpKind kind) noexcept {
  return kind == OpKind::kernel || kind == OpKind::copy || kind == OpKind::set ||
         is_communication(kind);
}

}  // namespace

ProgramStatistics program_statistics(const Graph& graph, std::uint32_t program) {
  const auto blocks = graph.program(program).blocks;
  std::vector<std::uint32_t> sorted(blocks.begin(), blocks.end());
  std::ranges::sort(sorted);
  ProgramStatistics sums;
  const auto offsets = graph.block_offsets();
  for (auto first = sorted.begin(); first != sorted.end();) {
    const auto last = std::find_if(first, sorted.end(), [&](auto id) { return id != *first; });
    const auto times = last - first;
    const auto count = static_cast<std::uint64_t>(times);
    for (std::uint64_t i = offsets[*first]; i < offsets[*first + 1]; ++i) {
      const Op op = graph.op(i);
      sums.ops += count;
      sums.by_kind[static_cast<std::size_t>(op.kind)] += count;
      if (op.kind == OpKind::mark && op.detail == static_cast<std::uint8_t>(MarkKind::iteration)) {
        sums.iterations += count;
      }
      if (is_communication(op.kind) && op.kind != OpKind::recv) {
        add(sums.bytes_sent, op.bytes, times);
      }
      if (takes_device_time(op.kind)) {
        add(sums.device_ns[op.flags & Op::provenance_mask], op.duration_ns, times);
      }
    }
    first = last;
  }
  return sums;
}

}  // namespace prism
