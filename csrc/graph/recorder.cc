#include "graph/recorder.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "graph/op_check.h"
#include "graph/tables.h"

namespace prism {
namespace {

constexpr std::size_t warm_ops = std::size_t{1} << 16;
constexpr std::size_t warm_blocks = std::size_t{1} << 13;

struct Slot {
  std::uint32_t name = 0;
  std::uint32_t size = 0;
  std::uint32_t position = 0;
  std::vector<std::uint32_t> members;
};

std::string in_rank(std::uint32_t rank) { return "rank " + std::to_string(rank) + ": "; }

}  // namespace

struct Recorder::Impl {
  Impl(std::uint32_t own_rank, std::uint32_t world) : rank(own_rank), world_size(world) {
    if (world == 0 || world > max_world_size || own_rank >= world) {
      throw GraphError(
          "rank " + std::to_string(own_rank) + " of a world of " + std::to_string(world) +
          " found, expected a rank below a world size of 1 to " + std::to_string(max_world_size));
    }
    ops.reserve(warm_ops);
    offsets.reserve(warm_blocks);
    program.reserve(warm_blocks);
    offsets.push(0);
  }

  void close_block() {
    const std::span<const Op> block = ops.view(block_start, ops.size() - block_start);
    closed_ops += block.size();
    const std::uint64_t hash = hash64(std::as_bytes(block));
    std::uint32_t id = blocks.find(hash, [&](std::uint32_t known) {
      const std::size_t size = offsets[known + 1] - offsets[known];
      return size == block.size() &&
             std::memcmp(ops.data() + offsets[known], block.data(), block.size_bytes()) == 0;
    });
    if (id == ContentTable::none) {
      id = static_cast<std::uint32_t>(offsets.size() - 1);
      blocks.insert(hash, id);
      block_start = ops.size();
      offsets.push(block_start);
    } else {
      ops.truncate(block_start);
    }
    program.push(id);
  }

  Graph finish(std::string_view metadata);
  Buffer<std::uint32_t> sites_of_blocks() const;
  std::vector<std::uint32_t> used_slots() const;  // in order of first use; GraphError if unfit

  std::uint32_t rank, world_size;
  Buffer<Op> ops;  // closed blocks, each once, then the open block
  std::size_t block_start = 0;
  Buffer<std::uint64_t> offsets;
  ContentTable blocks{warm_blocks * 2};
  Buffer<std::uint32_t> program;
  std::uint64_t closed_ops = 0;
  std::uint64_t communication_ops = 0;
  std::uint32_t iterations = 0;
  StringTable strings;
  KernelTable kernels;
  std::vector<Slot> slots;
  Buffer<std::uint32_t> call_sites;
  MemoryPeaks peaks;
};

Recorder::Recorder(std::uint32_t rank, std::uint32_t world_size)
    : impl_(std::make_unique<Impl>(rank, world_size)) {}
Recorder::~Recorder() = default;
Recorder::Recorder(Recorder&&) noexcept = default;
Recorder& Recorder::operator=(Recorder&&) noexcept = default;

void Recorder::append(const Op& op) {
  Impl& impl = *impl_;
  impl.ops.push(op);
  if (op.kind < OpKind::mark) [[likely]] {
    if (is_host_sync(op.kind) && ends_block(op, impl.ops.size() - impl.block_start)) {
      impl.close_block();
    }
    return;
  }
  if (is_communication(op.kind)) {
    ++impl.communication_ops;
    if (closes_block(op)) impl.close_block();
  } else if (op.detail == static_cast<std::uint8_t>(MarkKind::iteration)) {
    ++impl.iterations;
  }
}

std::uint32_t Recorder::string(std::string_view text) { return impl_->strings.intern(text); }

std::uint32_t Recorder::kernel(std::string_view name, const KernelShape& shape) {
  return impl_->kernels.intern(impl_->strings.intern(name), shape);
}

std::uint32_t Recorder::add_communicator(std::string_view name, std::uint32_t size,
                                         std::uint32_t position) {
  if (position >= size || size > impl_->world_size) {
    throw GraphError(in_rank(impl_->rank) + "communicator '" + std::string(name) + "': position " +
                     std::to_string(position) + " of " + std::to_string(size) +
                     " found, expected a position below a size of at most " +
                     std::to_string(impl_->world_size));
  }
  impl_->slots.push_back({impl_->strings.intern(name), size, position, {}});
  return static_cast<std::uint32_t>(impl_->slots.size() - 1);
}

void Recorder::set_members(std::uint32_t slot, std::span<const std::uint32_t> members) {
  const auto fail = [&](const std::string& what) {
    throw GraphError(in_rank(impl_->rank) + "communicator slot " + std::to_string(slot) + what);
  };
  if (slot >= impl_->slots.size()) {
    fail(" given members, expected a slot below " + std::to_string(impl_->slots.size()));
  }
  Slot& known = impl_->slots[slot];
  const std::string title = " ('" + std::string(impl_->strings[known.name]) + "'): ";
  if (members.size() != known.size) {
    fail(title + std::to_string(members.size()) + " members found, expected " +
         std::to_string(known.size));
  }
  if (members[known.position] != impl_->rank) {
    fail(title + "rank " + std::to_string(members[known.position]) + " found at position " +
         std::to_string(known.position) + ", expected this rank");
  }
  known.members.assign(members.begin(), members.end());
}

std::uint64_t Recorder::num_ops() const noexcept {
  return impl_->closed_ops + (impl_->ops.size() - impl_->block_start);
}
std::uint64_t Recorder::num_communication_ops() const noexcept { return impl_->communication_ops; }
std::uint32_t Recorder::num_iterations() const noexcept { return impl_->iterations; }

void Recorder::set_call_sites(std::span<const std::uint32_t> strings) {
  for (const std::uint32_t id : strings) {
    if (id < impl_->strings.size()) continue;
    throw GraphError(in_rank(impl_->rank) + "call site: string id " + std::to_string(id) +
                     " found, expected below " + std::to_string(impl_->strings.size()));
  }
  impl_->call_sites.truncate(0);
  impl_->call_sites.append(strings);
}

void Recorder::set_peaks(const MemoryPeaks& peaks) { impl_->peaks = peaks; }

std::vector<std::uint32_t> Recorder::Impl::used_slots() const {
  std::vector<std::uint32_t> used;
  std::vector<bool> seen(slots.size(), false);
  for (const Op& op : ops.view()) {
    if (!is_communication(op.kind)) continue;
    const std::string here = in_rank(rank) + std::string(name(op.kind));
    if (op.ref >= slots.size()) {
      throw GraphError(here + ": communicator slot " + std::to_string(op.ref) +
                       " found, expected below " + std::to_string(slots.size()));
    }
    const Slot& slot = slots[op.ref];
    const std::string title = "communicator '" + std::string(strings[slot.name]) + "'";
    if (needed_size(op) > slot.size) {
      throw GraphError(here + ": position or relative peer " + std::to_string(op.peer) +
                       " found, " + title + " has " + std::to_string(slot.size) + " members");
    }
    if (slot.members.empty()) {
      throw GraphError(in_rank(rank) + title + " is used but its members were never set");
    }
    if (!seen[op.ref]) used.push_back(op.ref);
    seen[op.ref] = true;
  }
  return used;
}

// Call sites were given one a communication launch; blocks that end otherwise have none.
Buffer<std::uint32_t> Recorder::Impl::sites_of_blocks() const {
  Buffer<std::uint32_t> sites;
  std::size_t launch = 0;
  for (const std::uint32_t block : program.view()) {
    const bool launches = closes_block(ops[offsets[block + 1] - 1]);
    sites.push(launches && launch < call_sites.size() ? call_sites[launch] : 0);
    launch += launches ? 1 : 0;
  }
  return sites;
}

Graph Recorder::Impl::finish(std::string_view metadata) {
  if (ops.size() > block_start) close_block();
  const std::string fault = find_fault(ops.view(), {kernels.size(), strings.size()});
  if (!fault.empty()) throw GraphError(in_rank(rank) + fault);

  CommunicatorTable communicators;
  Buffer<Binding> bindings;
  std::vector<std::uint32_t> number(slots.size(), 0);
  for (const std::uint32_t id : used_slots()) {
    const Slot& slot = slots[id];
    number[id] = static_cast<std::uint32_t>(bindings.size());
    const std::uint32_t communicator =
        communicators.intern(slot.name, slot.members, world_size, strings[slot.name]);
    bindings.push({communicator, slot.position});
  }
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (is_communication(ops[i].kind)) ops[i].ref = number[ops[i].ref];
  }

  const Buffer<std::uint32_t> sites = sites_of_blocks();
  const std::uint64_t program_offsets[] = {0, program.size()};
  const std::uint64_t binding_offsets[] = {0, bindings.size()};
  const std::uint32_t own_program = 0;
  const auto origin = static_cast<std::uint8_t>(RankOrigin::ran);

  Sources sources;
  const auto set = [&](format::Section section, std::span<const std::byte> bytes) {
    sources[static_cast<std::size_t>(section)] = bytes;
  };
  strings.sources(sources);
  kernels.sources(sources);
  communicators.sources(sources);
  set(format::Section::block_offsets, offsets.raw());
  set(format::Section::program_offsets, std::as_bytes(std::span(program_offsets)));
  set(format::Section::program_blocks, program.raw());
  set(format::Section::program_call_sites, sites.raw());
  set(format::Section::rank_ids, std::as_bytes(std::span(&rank, 1)));
  set(format::Section::rank_programs, std::as_bytes(std::span(&own_program, 1)));
  set(format::Section::rank_origins, std::as_bytes(std::span(&origin, 1)));
  set(format::Section::rank_peaks, std::as_bytes(std::span(&peaks, 1)));
  set(format::Section::binding_offsets, std::as_bytes(std::span(binding_offsets)));
  set(format::Section::bindings, bindings.raw());
  set(format::Section::metadata, std::as_bytes(std::span(metadata)));
  return write_image(world_size, iterations, sources, ops.size(),
                     [&](const OpColumns& columns) { columns.put(0, ops.view()); });
}

Graph Recorder::finish(std::string_view metadata) {
  Graph graph = impl_->finish(metadata);
  *impl_ = Impl(impl_->rank, impl_->world_size);
  return graph;
}

}  // namespace prism
