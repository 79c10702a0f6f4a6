#include "graph/digest.h"

#include <algorithm>
#include <unordered_map>

#include "graph/image.h"

namespace prism {
namespace {

// An op without its numbers: what `ref` points at stands beside it.
struct NamedOp {
  Hash128 ref;
  Op op;
};
static_assert(std::has_unique_object_representations_v<NamedOp>);

template <class T>
Hash128 hash_of(const std::vector<T>& values, std::uint64_t seed = 0) {
  return hash128(std::as_bytes(std::span(values)), seed);
}

// Hashes are made once for each block, program and communicator. A rank's communicators get
// numbers by first use of their member list; a block's hash numbers them again from 0, so that it
// holds wherever the block stands.
class Digester {
 public:
  Digester(const Graph& graph, DigestScope scope)
      : g_(GraphAccess::impl(graph)),
        scope_(scope),
        blocks_(graph.num_blocks()),
        programs_(graph.num_programs()),
        communicators_(graph.num_communicators()) {
    for (std::uint32_t id = 0; id < communicators_.size(); ++id) {
      communicators_[id] = hash128(std::as_bytes(graph.communicator(id).members));
    }
    if (scope == DigestScope::communication) return;
    kernels_.reserve(graph.num_kernels());
    for (std::uint32_t id = 0; id < graph.num_kernels(); ++id) {
      const std::string_view name = graph.kernel_name(id);
      const Hash128 of_name = hash128(std::as_bytes(std::span(name)));
      const auto shape = std::as_bytes(std::span(&graph.kernel_shape(id), 1));
      const Hash128 of_shape = hash128(shape);
      kernels_.push_back(hash_of(std::vector{of_name, of_shape}));
    }
  }

  Hash128 rank(std::size_t at) {
    const std::uint32_t program = g_.rank_classes()[g_.rank_programs[at]];
    const Binding* bindings = g_.bindings.data() + g_.binding_offsets[at];
    const std::vector<std::uint32_t>& slots = slots_of(program);
    // Class of a slot: slots with one member list are one.
    classes_.assign(slots.empty() ? 0 : *std::ranges::max_element(slots) + 1, 0);
    positions_.clear();
    members_.clear();
    class_of_.clear();
    for (const std::uint32_t slot : slots) {
      const Hash128& members = communicators_[bindings[slot].communicator];
      const auto next = static_cast<std::uint32_t>(members_.size());
      const auto [known, is_new] = class_of_.try_emplace(members, next);
      classes_[slot] = known->second;
      if (!is_new) continue;
      members_.push_back(members);
      positions_.push_back(bindings[slot].position);
    }
    Hasher hasher;
    hasher.value(g_.rank_ids[at]);
    hasher.value(program_hash(program));
    for (std::size_t i = 0; i < members_.size(); ++i) {
      hasher.value(members_[i]);
      hasher.value(positions_[i]);
    }
    return hasher.digest();
  }

 private:
  struct Block {
    bool known = false;
    bool empty = false;                // nothing in scope
    Hash128 hash;                      // its slots all of different classes
    std::vector<std::uint32_t> slots;  // by first use
  };
  struct Program {
    bool known = false;
    std::vector<std::uint32_t> slots;  // by first use
  };

  Block& block(std::uint32_t id) {
    Block& block = blocks_[id];
    if (block.known) return block;
    block.known = true;
    const auto number = [&](std::uint32_t slot) {
      const auto at = std::ranges::find(block.slots, slot);
      const auto index = static_cast<std::uint32_t>(at - block.slots.begin());
      if (at == block.slots.end()) block.slots.push_back(slot);
      return index;
    };
    block.hash = hash_block(id, number);
    block.empty = named_.empty();
    return block;
  }

  template <class Number>
  Hash128 hash_block(std::uint32_t id, Number number) {
    named_.clear();
    for (std::uint64_t i = g_.block_offsets[id]; i < g_.block_offsets[id + 1]; ++i) {
      const Op op = g_.op(i);
      if (is_communication(op.kind)) {
        named_.push_back({{number(op.ref), 0}, nameless(op)});
      } else if (scope_ == DigestScope::everything) {
        named_.push_back({name_of(op), nameless(op)});
      }
    }
    return hash_of(named_);
  }

  Op nameless(Op op) const noexcept {
    op.ref = 0;
    op.flags &= static_cast<std::uint8_t>(~Op::provenance_mask);
    if (scope_ == DigestScope::communication) {
      op.flags &= Op::group_continues;
      op.stream = op.event_stream = 0;
      op.host_ns = 0;
      op.duration_ns = 0;
    }
    return op;
  }

  Hash128 name_of(const Op& op) const {
    if (op.kind == OpKind::kernel) return kernels_[op.ref];
    if (op.kind != OpKind::mark) return {};
    const std::string_view label = g_.string(op.ref);
    return hash128(std::as_bytes(std::span(label)));
  }

  const std::vector<std::uint32_t>& slots_of(std::uint32_t id) {
    Program& program = programs_[id];
    if (program.known) return program.slots;
    program.known = true;
    std::vector<bool> seen;
    for (const std::uint32_t b : g_.blocks_of(id)) {
      for (const std::uint32_t slot : block(b).slots) {
        if (slot >= seen.size()) seen.resize(slot + 1, false);
        if (!seen[slot]) program.slots.push_back(slot);
        seen[slot] = true;
      }
    }
    return program.slots;
  }

  // Of a program whose slots have the classes in classes_.
  Hash128 program_hash(std::uint32_t id) {
    const Hash128 key = hash_of(classes_, id);
    const auto known = program_hashes_.find(key);
    if (known != program_hashes_.end()) return known->second;
    sequence_.clear();
    for (const std::uint32_t b : g_.blocks_of(id)) {
      const Block& of_block = block(b);
      if (of_block.empty) continue;
      local_.clear();
      for (const std::uint32_t slot : of_block.slots) {
        if (std::ranges::find(local_, classes_[slot]) == local_.end()) {
          local_.push_back(classes_[slot]);
        }
      }
      const bool distinct = local_.size() == of_block.slots.size();
      const Hash128 hash = distinct ? of_block.hash : hash_block(b, [&](std::uint32_t slot) {
        const auto at = std::ranges::find(local_, classes_[slot]);
        return static_cast<std::uint32_t>(at - local_.begin());
      });
      sequence_.insert(sequence_.end(), {hash.low, hash.high, local_.size()});
      sequence_.insert(sequence_.end(), local_.begin(), local_.end());
    }
    return program_hashes_[key] = hash_of(sequence_);
  }

  const Graph::Impl& g_;
  DigestScope scope_;
  std::vector<Block> blocks_;
  std::vector<Program> programs_;
  std::vector<Hash128> communicators_, kernels_;
  std::unordered_map<Hash128, Hash128, Hash128Hasher> program_hashes_;
  // Scratch.
  std::vector<NamedOp> named_;
  std::vector<std::uint64_t> sequence_;
  std::vector<std::uint32_t> classes_, local_, positions_;
  std::vector<Hash128> members_;
  std::unordered_map<Hash128, std::uint32_t, Hash128Hasher> class_of_;  // by member list
};

Hash128 digest_of(const Graph& graph, DigestScope scope) {
  Hasher hasher;
  hasher.value(static_cast<std::uint32_t>(scope));
  hasher.value(graph.world_size());
  for (const Hash128& rank : rank_digests(graph, scope)) hasher.value(rank);
  return hasher.digest();
}

}  // namespace

std::vector<Hash128> rank_digests(const Graph& graph, DigestScope scope) {
  Digester digester(graph, scope);
  std::vector<Hash128> hashes;
  hashes.reserve(graph.ranks().size());
  for (std::size_t i = 0; i < graph.ranks().size(); ++i) hashes.push_back(digester.rank(i));
  return hashes;
}

Hash128 digest(const Graph& graph) { return digest_of(graph, DigestScope::everything); }

Hash128 communication_digest(const Graph& graph) {
  return digest_of(graph, DigestScope::communication);
}

}  // namespace prism
