#include "graph/builder.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "graph/bound_twice.h"
#include "graph/builder_impl.h"
#include "graph/op_check.h"

namespace prism {
namespace {

bool is_iteration_mark(const Op& op) noexcept {
  return op.kind == OpKind::mark && op.detail == static_cast<std::uint8_t>(MarkKind::iteration);
}

void need(std::vector<std::uint32_t>& needs, const Op& op) {
  if (op.ref >= needs.size()) needs.resize(std::size_t{op.ref} + 1, 0);
  needs[op.ref] = std::max(needs[op.ref], needed_size(op));
}

std::string in_rank(std::uint32_t rank) { return "rank " + std::to_string(rank) + ": "; }

}  // namespace

std::uint32_t GraphBuilder::Impl::add_block(std::span<const Op> block, std::uint64_t hash) {
  const std::uint32_t found = blocks.find(hash, [&](std::uint32_t id) {
    const std::uint64_t from = block_offsets[id];
    return block_offsets[id + 1] - from == block.size() && ops.equals(from, block);
  });
  if (found != ContentTable::none) return found;
  if (num_blocks() >= ContentTable::none) throw GraphError("more than 2^32 different blocks");
  const auto id = static_cast<std::uint32_t>(num_blocks());
  ops.append(block);
  block_offsets.push(ops.size());
  blocks.insert(hash, id);
  return id;
}

std::uint32_t GraphBuilder::Impl::add_program(std::span<const std::uint32_t> list,
                                              std::span<const std::uint32_t> call_sites) {
  sites.truncate(0);
  sites.append(call_sites.first(std::min(call_sites.size(), list.size())));
  while (sites.size() < list.size()) sites.push(0);
  const std::uint64_t hash = hash64(std::as_bytes(sites.view()), hash64(std::as_bytes(list)));
  const std::uint32_t found = programs.find(hash, [&](std::uint32_t id) {
    return std::ranges::equal(blocks_of(id), list) &&
           std::ranges::equal(call_sites_of(id), sites.view());
  });
  if (found != ContentTable::none) return found;
  const auto id = static_cast<std::uint32_t>(num_programs());
  program_blocks.append(list);
  program_call_sites.append(sites.view());
  program_offsets.push(program_blocks.size());
  programs.insert(hash, id);
  return id;
}

void GraphBuilder::Impl::add_rank(std::uint32_t rank, std::uint32_t program, RankOrigin origin,
                                  std::span<const Binding> given, const MemoryPeaks& peaks) {
  const Rank added{program, origin, bindings.size(), given.size(), peaks};
  ranks.insert_or_assign(ranks.end(), rank, added);  // mostly in rising order
  bindings.append(given);
}

std::uint32_t GraphBuilder::Impl::iterations_of(std::span<const std::uint32_t> list) {
  for (std::size_t block = block_marks.size(); block < num_blocks(); ++block) {
    std::uint32_t marks = 0;
    for (std::uint64_t i = block_offsets[block]; i < block_offsets[block + 1]; ++i) {
      if (is_iteration_mark(ops[i])) ++marks;
    }
    block_marks.push(marks);
  }
  std::uint64_t marks = 0;
  for (const std::uint32_t block : list) marks += block_marks[block];
  if (marks > UINT32_MAX) throw GraphError("a program of more than 2^32 iteration marks");
  return static_cast<std::uint32_t>(marks);
}

// Communication ops of a block are the parts of the launch that ends it.
void GraphBuilder::Impl::add_needs(std::uint32_t block, Needs& wanted) const {
  for (std::uint64_t i = block_offsets[block + 1]; i > block_offsets[block]; --i) {
    const Op& op = ops[i - 1];
    if (!is_communication(op.kind)) break;
    need(wanted, op);
  }
}

const GraphBuilder::Impl::Needs& GraphBuilder::Impl::needs_of(std::uint32_t program) {
  const auto [entry, is_new] = known_needs.try_emplace(program);
  if (!is_new) return entry->second;
  for (const std::uint32_t block : blocks_of(program)) add_needs(block, entry->second);
  return entry->second;
}

const GraphBuilder::Impl::Rank& GraphBuilder::Impl::known_rank(std::uint32_t rank) const {
  const auto found = ranks.find(rank);
  if (found == ranks.end()) {
    throw GraphError(in_rank(rank) + "has no program yet, expected a rank that was set or merged");
  }
  return found->second;
}

std::uint32_t GraphBuilder::Impl::scan(std::uint32_t rank, std::span<const Op> given,
                                       std::size_t slots) {
  const OpLimits known = limits();
  cuts.truncate(0);
  needs.clear();
  std::uint32_t marks = 0;
  std::size_t from = 0;
  bool sound = true;
  const auto cut = [&](std::size_t to) {
    const std::uint64_t hash = hash64(std::as_bytes(given.subspan(from, to - from)));
    blocks.prefetch(hash);
    cuts.push({hash, from, to - from});
    from = to;
  };
  for (std::size_t i = 0; i < given.size() && sound; ++i) {
    const Op& op = given[i];
    sound = is_sound(op, known) && (i == 0 || may_follow(given[i - 1], op));
    if (is_communication(op.kind)) {
      if (op.ref < slots) {
        need(needs, op);
      } else if (sound) {
        throw GraphError(in_rank(rank) + "op " + std::to_string(i) + ": " +
                         std::string(name(op.kind)) + " on communicator slot " +
                         std::to_string(op.ref) + ", bindings for " + std::to_string(slots) +
                         " slots given");
      }
    } else if (is_iteration_mark(op)) {
      ++marks;
    }
    if (ends_block(op, i + 1 - from)) cut(i + 1);
  }
  if (!sound || (!given.empty() && given.back().continues())) {
    throw GraphError(in_rank(rank) + find_fault(given, known));
  }
  if (from < given.size()) cut(given.size());
  return marks;
}

void GraphBuilder::Impl::check_free(std::uint32_t rank) const {
  if (rank >= world_size) {
    throw GraphError(in_rank(rank) + "found, expected a rank below the world size " +
                     std::to_string(world_size));
  }
  if (ranks.contains(rank)) {
    throw GraphError(in_rank(rank) + "has a program already, expected each rank once");
  }
}

void GraphBuilder::Impl::check_bindings(std::uint32_t rank, std::span<const Binding> given,
                                        const Needs& wanted) const {
  if (wanted.size() > given.size()) {
    throw GraphError(in_rank(rank) + "its ops use communicator slot " +
                     std::to_string(wanted.size() - 1) + ", bindings for " +
                     std::to_string(given.size()) + " slots given");
  }
  for (std::size_t slot = 0; slot < given.size(); ++slot) {
    const Binding binding = given[slot];
    const auto fail = [&](const std::string& what) {
      throw GraphError(in_rank(rank) + "slot " + std::to_string(slot) + ": " + what);
    };
    if (binding.communicator >= communicators.size()) {
      fail("communicator id " + std::to_string(binding.communicator) + " found, expected below " +
           std::to_string(communicators.size()));
    }
    const auto members = communicators.members(binding.communicator);
    const auto title = [&] {
      return "communicator '" + std::string(strings[communicators.name(binding.communicator)]) +
             "'";
    };
    if (binding.position >= members.size() || members[binding.position] != rank) {
      fail("position " + std::to_string(binding.position) + " of " + title() +
           " found, where the rank is not");
    }
    if (slot < wanted.size() && wanted[slot] > members.size()) {
      fail("an op names position or relative peer " + std::to_string(wanted[slot] - 1) + " of " +
           title() + ", which has " + std::to_string(members.size()) + " members");
    }
  }
  if (const auto twice = bound_twice(given)) {
    throw GraphError(in_rank(rank) + "slots " + std::to_string(twice->first) + " and " +
                     std::to_string(twice->second) + " are both of communicator '" +
                     std::string(strings[communicators.name(given[twice->first].communicator)]) +
                     "', expected one slot for each");
  }
}

void GraphBuilder::Impl::check_call_sites(std::uint32_t rank,
                                          std::span<const std::uint32_t> call_sites) const {
  for (const std::uint32_t id : call_sites) {
    if (id < strings.size()) continue;
    throw GraphError(in_rank(rank) + "call site: string id " + std::to_string(id) +
                     " found, expected below " + std::to_string(strings.size()));
  }
}

GraphBuilder::GraphBuilder(std::uint32_t world_size) : impl_(std::make_unique<Impl>(world_size)) {}
GraphBuilder::~GraphBuilder() = default;
GraphBuilder::GraphBuilder(GraphBuilder&&) noexcept = default;
GraphBuilder& GraphBuilder::operator=(GraphBuilder&&) noexcept = default;

std::uint32_t GraphBuilder::string(std::string_view text) { return impl_->strings.intern(text); }

std::uint32_t GraphBuilder::kernel(std::string_view name, const KernelShape& shape) {
  return impl_->kernels.intern(impl_->strings.intern(name), shape);
}

std::uint32_t GraphBuilder::communicator(std::string_view name,
                                         std::span<const std::uint32_t> members) {
  return impl_->communicators.intern(impl_->strings.intern(name), members, impl_->world_size, name);
}

void GraphBuilder::set_rank(std::uint32_t rank, std::span<const Op> ops,
                            std::span<const Binding> bindings,
                            std::span<const std::uint32_t> call_sites, const MemoryPeaks& peaks) {
  Impl& impl = *impl_;
  impl.check_free(rank);
  impl.check_call_sites(rank, call_sites);
  const std::uint32_t iterations = impl.scan(rank, ops, bindings.size());
  impl.check_bindings(rank, bindings, impl.needs);

  impl.block_ids.truncate(0);
  impl.block_sites.truncate(0);
  std::size_t launch = 0;
  for (const Impl::Cut& cut : impl.cuts.view()) {
    impl.block_ids.push(impl.add_block(ops.subspan(cut.from, cut.size), cut.hash));
    if (call_sites.empty()) continue;
    const bool launches = closes_block(ops[cut.from + cut.size - 1]);
    impl.block_sites.push(launches && launch < call_sites.size() ? call_sites[launch] : 0);
    launch += launches ? 1 : 0;
  }
  const std::uint32_t program = impl.add_program(impl.block_ids.view(), impl.block_sites.view());
  impl.iterations = std::max(impl.iterations, iterations);
  impl.add_rank(rank, program, RankOrigin::ran, bindings, peaks);
}

void GraphBuilder::infer(std::uint32_t rank, std::uint32_t like, std::span<const Binding> bindings,
                         const MemoryPeaks& peaks) {
  impl_->check_free(rank);
  const std::uint32_t program = impl_->known_rank(like).program;
  impl_->check_bindings(rank, bindings, impl_->needs_of(program));
  impl_->add_rank(rank, program, RankOrigin::inferred, bindings, peaks);
}

void GraphBuilder::infer_program(std::uint32_t rank, std::span<const std::uint32_t> blocks,
                                 std::span<const std::uint32_t> call_sites,
                                 std::span<const Binding> bindings, const MemoryPeaks& peaks) {
  Impl& impl = *impl_;
  impl.check_free(rank);
  impl.check_call_sites(rank, call_sites);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::string here = in_rank(rank) + "block " + std::to_string(blocks[i]);
    if (blocks[i] >= impl.num_blocks()) {
      throw GraphError(here + " found, expected below " + std::to_string(impl.num_blocks()));
    }
    if (i + 1 < blocks.size() &&
        !may_end_block(impl.ops[impl.block_offsets[blocks[i] + 1] - 1].kind)) {
      throw GraphError(here +
                       " ends without communication or a host synchronisation, "
                       "expected only as the last block");
    }
  }
  Impl::Needs needs;
  for (const std::uint32_t block : blocks) impl.add_needs(block, needs);
  impl.check_bindings(rank, bindings, needs);
  const std::uint32_t program = impl.add_program(blocks, call_sites);
  impl.iterations = std::max(impl.iterations, impl.iterations_of(blocks));
  impl.add_rank(rank, program, RankOrigin::inferred, bindings, peaks);
}

std::vector<std::uint32_t> GraphBuilder::program_of(std::uint32_t rank) const {
  const auto blocks = impl_->blocks_of(impl_->known_rank(rank).program);
  return {blocks.begin(), blocks.end()};
}

Graph GraphBuilder::finish(std::string_view metadata) {
  Impl& impl = *impl_;
  Buffer<std::uint32_t> ids, programs;
  Buffer<std::uint8_t> origins;
  Buffer<MemoryPeaks> peaks;
  Buffer<std::uint64_t> binding_offsets;
  Buffer<Binding> bindings;
  binding_offsets.push(0);
  for (const auto& [id, rank] : impl.ranks) {
    ids.push(id);
    programs.push(rank.program);
    origins.push(static_cast<std::uint8_t>(rank.origin));
    peaks.push(rank.peaks);
    bindings.append(impl.bindings.view(rank.bindings_from, rank.bindings_count));
    binding_offsets.push(bindings.size());
  }

  Sources sources;
  const auto set = [&](format::Section section, std::span<const std::byte> bytes) {
    sources[static_cast<std::size_t>(section)] = bytes;
  };
  impl.strings.sources(sources);
  impl.kernels.sources(sources);
  impl.communicators.sources(sources);
  set(format::Section::block_offsets, impl.block_offsets.raw());
  set(format::Section::program_offsets, impl.program_offsets.raw());
  set(format::Section::program_blocks, impl.program_blocks.raw());
  set(format::Section::program_call_sites, impl.program_call_sites.raw());
  set(format::Section::rank_ids, ids.raw());
  set(format::Section::rank_programs, programs.raw());
  set(format::Section::rank_origins, origins.raw());
  set(format::Section::rank_peaks, peaks.raw());
  set(format::Section::binding_offsets, binding_offsets.raw());
  set(format::Section::bindings, bindings.raw());
  set(format::Section::metadata, std::as_bytes(std::span(metadata)));
  const std::uint32_t world_size = impl.world_size;
  impl.blocks = ContentTable();
  Graph graph = write_image(world_size, impl.iterations, sources, impl.ops.size(),
                            [&](const OpColumns& columns) { impl.ops.move_to(columns); });
  impl_ = std::make_unique<Impl>(world_size);
  return graph;
}

}  // namespace prism
