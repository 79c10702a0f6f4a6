// What a GraphBuilder holds. Internal to csrc/graph.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/op_check.h"
#include "graph/op_store.h"
#include "graph/tables.h"

namespace prism {

struct GraphBuilder::Impl {
  struct Rank {
    std::uint32_t program = 0;
    RankOrigin origin = RankOrigin::ran;
    std::uint64_t bindings_from = 0;
    std::uint64_t bindings_count = 0;
    MemoryPeaks peaks;
  };

  struct Cut {
    std::uint64_t hash = 0;
    std::size_t from = 0, size = 0;
  };

  // By communicator slot, how many members it must have; slots in no op: 0.
  using Needs = std::vector<std::uint32_t>;

  explicit Impl(std::uint32_t world) : world_size(world) {
    if (world == 0 || world > max_world_size) {
      throw GraphError("world size " + std::to_string(world) + " found, expected 1 to " +
                       std::to_string(max_world_size));
    }
    block_offsets.push(0);
    program_offsets.push(0);
  }

  std::size_t num_blocks() const noexcept { return block_offsets.size() - 1; }
  std::size_t num_programs() const noexcept { return program_offsets.size() - 1; }
  std::span<const std::uint32_t> blocks_of(std::uint32_t program) const noexcept {
    return program_blocks.view(program_offsets[program],
                               program_offsets[program + 1] - program_offsets[program]);
  }
  std::span<const std::uint32_t> call_sites_of(std::uint32_t program) const noexcept {
    return program_call_sites.view(program_offsets[program],
                                   program_offsets[program + 1] - program_offsets[program]);
  }
  OpLimits limits() const noexcept { return {kernels.size(), strings.size()}; }

  std::uint32_t add_block(std::span<const Op> ops, std::uint64_t hash);
  // Programs are told apart by their blocks and by the call sites of these (missing ones: 0).
  std::uint32_t add_program(std::span<const std::uint32_t> blocks,
                            std::span<const std::uint32_t> call_sites);
  void add_rank(std::uint32_t rank, std::uint32_t program, RankOrigin origin,
                std::span<const Binding> given, const MemoryPeaks& peaks);
  std::uint32_t iterations_of(std::span<const std::uint32_t> blocks);
  void add_needs(std::uint32_t block, Needs& needs) const;
  const Needs& needs_of(std::uint32_t program);
  const Rank& known_rank(std::uint32_t rank) const;

  // Cuts ops into blocks and finds what they need; GraphError if they are not sound.
  std::uint32_t scan(std::uint32_t rank, std::span<const Op> ops, std::size_t slots);

  void check_free(std::uint32_t rank) const;
  void check_bindings(std::uint32_t rank, std::span<const Binding> given, const Needs& needs) const;
  void check_call_sites(std::uint32_t rank, std::span<const std::uint32_t> call_sites) const;

  std::uint32_t world_size;
  std::uint32_t iterations = 0;
  StringTable strings;
  KernelTable kernels;
  CommunicatorTable communicators;
  OpStore ops;
  Buffer<std::uint64_t> block_offsets;
  ContentTable blocks;
  Buffer<std::uint32_t> block_marks;  // iteration marks, of the blocks asked about so far
  Buffer<std::uint64_t> program_offsets;
  Buffer<std::uint32_t> program_blocks, program_call_sites;
  ContentTable programs;
  std::map<std::uint32_t, Rank> ranks;  // a world may be much larger than what is held of it
  Buffer<Binding> bindings;
  std::unordered_map<std::uint32_t, Needs> known_needs;  // by program, of infer()
  Buffer<std::uint32_t> sites;                           // scratch of add_program
  // Scratch of set_rank.
  Buffer<Cut> cuts;
  Buffer<std::uint32_t> block_ids, block_sites;
  Needs needs;
};

}  // namespace prism
