#include "graph/graph.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "graph/content_table.h"
#include "graph/image.h"

namespace prism {
namespace {

[[noreturn]] void no_such(const char* what, std::uint64_t id, std::uint64_t count) {
  throw GraphError(std::string(what) + ' ' + std::to_string(id) + " asked for, expected below " +
                   std::to_string(count));
}

void expect_below(const char* what, std::uint64_t id, std::uint64_t count) {
  if (id >= count) [[unlikely]] {
    no_such(what, id, count);
  }
}

template <class T>
std::span<const T> slice(std::span<const T> values, std::span<const std::uint64_t> offsets,
                         std::size_t index) noexcept {
  return values.subspan(offsets[index], offsets[index + 1] - offsets[index]);
}

}  // namespace

Op Graph::Impl::op(std::uint64_t i) const noexcept {
  Op op;
  op.kind = static_cast<OpKind>(op_kind[i]);
  op.flags = op_flags[i];
  op.dtype = static_cast<DataType>(op_dtype[i]);
  op.detail = op_detail[i];
  op.ref = op_ref[i];
  op.stream = op_stream[i];
  op.event_stream = op_event_stream[i];
  op.peer = op_peer[i];
  op.host_ns = op_host_ns[i];
  op.tag = op_tag[i];
  op.duration_ns = op_duration_ns[i];
  op.bytes = op_bytes[i];
  return op;
}

std::string_view Graph::Impl::string(std::uint32_t id) const noexcept {
  const std::uint64_t from = string_offsets[id];
  return {string_bytes.data() + from, string_offsets[id + 1] - from};
}

std::size_t Graph::Impl::find_rank(std::uint32_t rank) const noexcept {
  if (rank < rank_ids.size() && rank_ids[rank] == rank) return rank;  // no rank is missing
  const auto found = std::lower_bound(rank_ids.begin(), rank_ids.end(), rank);
  if (found == rank_ids.end() || *found != rank) return rank_ids.size();
  return static_cast<std::size_t>(found - rank_ids.begin());
}

std::span<const std::uint32_t> Graph::Impl::blocks_of(std::uint32_t program) const noexcept {
  return slice(program_blocks, program_offsets, program);
}

std::span<const std::uint32_t> Graph::Impl::rank_classes() const {
  std::call_once(classes_known_, [this] {
    const auto count = static_cast<std::uint32_t>(program_offsets.size() - 1);
    std::vector<std::uint32_t> classes;
    classes.reserve(count);
    ContentTable lowest;
    for (std::uint32_t id = 0; id < count; ++id) {
      const auto blocks = blocks_of(id);
      const std::uint64_t hash = hash64(std::as_bytes(blocks));
      const std::uint32_t found = lowest.find(
          hash, [&](std::uint32_t other) { return std::ranges::equal(blocks_of(other), blocks); });
      if (found == ContentTable::none) lowest.insert(hash, id);
      classes.push_back(found == ContentTable::none ? id : found);
    }
    classes_ = std::move(classes);
  });
  return classes_;
}

std::span<const std::byte> Graph::bytes() const noexcept { return impl_->storage->bytes(); }
std::uint32_t Graph::world_size() const noexcept { return impl_->world_size; }
std::uint32_t Graph::iterations() const noexcept { return impl_->iterations; }
std::string_view Graph::metadata() const noexcept {
  return {impl_->metadata.data(), impl_->metadata.size()};
}

std::span<const std::uint32_t> Graph::ranks() const noexcept { return impl_->rank_ids; }

bool Graph::has_rank(std::uint32_t rank) const noexcept {
  return impl_->find_rank(rank) < impl_->rank_ids.size();
}

RankView Graph::rank(std::uint32_t rank) const {
  const std::size_t at = impl_->find_rank(rank);
  if (at == impl_->rank_ids.size()) {
    throw GraphError("rank " + std::to_string(rank) + " is not in this graph, which holds " +
                     std::to_string(impl_->rank_ids.size()) + " of " +
                     std::to_string(impl_->world_size) + " ranks");
  }
  RankView view;
  view.rank = rank;
  view.program = impl_->rank_programs[at];
  view.origin = static_cast<RankOrigin>(impl_->rank_origins[at]);
  view.peaks = impl_->rank_peaks[at];
  view.bindings = slice(impl_->bindings, impl_->binding_offsets, at);
  return view;
}

std::size_t Graph::num_blocks() const noexcept { return impl_->block_offsets.size() - 1; }
std::uint64_t Graph::num_ops() const noexcept { return impl_->op_kind.size(); }
std::span<const std::uint64_t> Graph::block_offsets() const noexcept {
  return impl_->block_offsets;
}

std::size_t Graph::block_size(std::uint32_t block) const {
  expect_below("block", block, num_blocks());
  return impl_->block_offsets[block + 1] - impl_->block_offsets[block];
}

Op Graph::op(std::uint64_t index) const {
  expect_below("op", index, num_ops());
  return impl_->op(index);
}

void Graph::read_block(std::uint32_t block, std::vector<Op>& out) const {
  expect_below("block", block, num_blocks());
  const std::uint64_t from = impl_->block_offsets[block];
  const std::uint64_t to = impl_->block_offsets[block + 1];
  const std::size_t start = out.size();
  out.resize(start + (to - from));
  for (std::uint64_t i = from; i < to; ++i) out[start + (i - from)] = impl_->op(i);
}

std::size_t Graph::num_programs() const noexcept { return impl_->program_offsets.size() - 1; }

ProgramView Graph::program(std::uint32_t id) const {
  expect_below("program", id, num_programs());
  return {impl_->blocks_of(id), slice(impl_->program_call_sites, impl_->program_offsets, id)};
}

std::uint32_t Graph::rank_class(std::uint32_t program) const {
  expect_below("program", program, num_programs());
  return impl_->rank_classes()[program];
}

std::size_t Graph::num_communicators() const noexcept { return impl_->communicator_names.size(); }

CommunicatorView Graph::communicator(std::uint32_t id) const {
  expect_below("communicator", id, num_communicators());
  return {impl_->string(impl_->communicator_names[id]),
          slice(impl_->communicator_members, impl_->communicator_offsets, id)};
}

std::size_t Graph::num_kernels() const noexcept { return impl_->kernel_names.size(); }

std::string_view Graph::kernel_name(std::uint32_t id) const {
  expect_below("kernel", id, num_kernels());
  return impl_->string(impl_->kernel_names[id]);
}

const KernelShape& Graph::kernel_shape(std::uint32_t id) const {
  expect_below("kernel", id, num_kernels());
  return impl_->kernel_shapes[id];
}

std::size_t Graph::num_strings() const noexcept { return impl_->string_offsets.size() - 1; }

std::string_view Graph::string(std::uint32_t id) const {
  expect_below("string", id, num_strings());
  return impl_->string(id);
}

}  // namespace prism
