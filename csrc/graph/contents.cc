// Checks every index and number of a graph that came from outside.
#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "graph/bound_twice.h"
#include "graph/image.h"
#include "graph/op_check.h"

namespace prism {
namespace {

class Contents {
 public:
  Contents(const Graph::Impl& graph, std::string_view origin) : g_(graph), origin_(origin) {}

  void check() {
    if (g_.world_size == 0 || g_.world_size > max_world_size) {
      fail("world size " + number(g_.world_size) + " found, expected 1 to " +
           number(max_world_size));
    }
    check_strings();
    check_kernels();
    check_communicators();
    check_ops();
    check_programs();
    check_ranks();
  }

 private:
  // What a rank must have to run a program: found when the first rank of it is checked.
  struct Needs {
    bool known = false;
    std::uint64_t iterations = 0;
    std::vector<std::uint32_t> sizes;  // by communicator slot: members it must have at least
  };

  static std::string number(std::uint64_t value) { return std::to_string(value); }

  [[noreturn]] void fail(const std::string& what) const {
    throw GraphFormatError(std::string(origin_) + ": " + what +
                           "; the file is damaged: copy or collect it again");
  }

  void expect_length(const char* column, std::size_t found, std::size_t expected) const {
    if (found == expected) return;
    fail(std::string(column) + ": " + number(found) + " values found, " + number(expected) +
         " expected");
  }

  void expect_below(const char* column, std::size_t at, std::uint64_t found,
                    std::uint64_t limit) const {
    if (found < limit) return;
    fail(std::string(column) + "[" + number(at) + "]: " + number(found) +
         " found, expected below " + number(limit));
  }

  // Offsets begin with 0, do not fall, and end with `end`; each step is at least `least`.
  void check_offsets(const char* column, std::span<const std::uint64_t> offsets, std::size_t end,
                     std::uint64_t least) const {
    if (offsets.empty()) fail(std::string(column) + ": is empty, expected at least one value");
    if (offsets.front() != 0 || offsets.back() != end) {
      fail(std::string(column) + ": from " + number(offsets.front()) + " to " +
           number(offsets.back()) + " found, expected 0 to " + number(end));
    }
    for (std::size_t i = 1; i < offsets.size(); ++i) {
      if (offsets[i] < offsets[i - 1] || offsets[i] - offsets[i - 1] < least) {
        fail(std::string(column) + "[" + number(i) + "]: " + number(offsets[i]) + " found after " +
             number(offsets[i - 1]) + ", expected at least " + number(least) + " more");
      }
    }
  }

  void check_strings() const {
    check_offsets("string_offsets", g_.string_offsets, g_.string_bytes.size(), 0);
    if (g_.string_offsets.size() < 2 || g_.string_offsets[1] != 0) {
      fail("string_offsets: string 0 is not the empty string");
    }
  }

  std::size_t strings() const noexcept { return g_.string_offsets.size() - 1; }

  void check_kernels() const {
    expect_length("kernel_shapes", g_.kernel_shapes.size(), g_.kernel_names.size());
    for (std::size_t i = 0; i < g_.kernel_names.size(); ++i) {
      expect_below("kernel_names", i, g_.kernel_names[i], strings());
      const KernelShape& shape = g_.kernel_shapes[i];
      const bool known = shape.dtype <= DataType::float8e5m2 || shape.dtype == DataType::none;
      const auto fine = [](std::int64_t v) { return v >= 0 && v <= max_value; };
      if (!known || !fine(shape.gemm.m) || !fine(shape.gemm.n) || !fine(shape.gemm.k) ||
          !fine(shape.gemm.batch)) {
        fail("kernel_shapes[" + number(i) + "]: unknown dtype or impossible GEMM dimensions");
      }
    }
  }

  void check_communicators() const {
    const std::size_t count = g_.communicator_names.size();
    expect_length("communicator_offsets", g_.communicator_offsets.size(), count + 1);
    check_offsets("communicator_offsets", g_.communicator_offsets, g_.communicator_members.size(),
                  1);
    std::vector<std::uint32_t> sorted;
    for (std::size_t i = 0; i < count; ++i) {
      expect_below("communicator_names", i, g_.communicator_names[i], strings());
      const auto members = g_.communicator_members.subspan(
          g_.communicator_offsets[i], g_.communicator_offsets[i + 1] - g_.communicator_offsets[i]);
      bool rising = true;
      for (std::size_t k = 0; k < members.size(); ++k) {
        expect_below("communicator_members", g_.communicator_offsets[i] + k, members[k],
                     g_.world_size);
        rising = rising && (k == 0 || members[k - 1] < members[k]);
      }
      if (rising) continue;
      sorted.assign(members.begin(), members.end());
      std::sort(sorted.begin(), sorted.end());
      if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
        fail("communicator " + number(i) + ": names a rank twice");
      }
    }
  }

  void check_ops() {
    const std::size_t count = g_.op_kind.size();
    expect_length("op_flags", g_.op_flags.size(), count);
    expect_length("op_dtype", g_.op_dtype.size(), count);
    expect_length("op_detail", g_.op_detail.size(), count);
    expect_length("op_ref", g_.op_ref.size(), count);
    expect_length("op_stream", g_.op_stream.size(), count);
    expect_length("op_event_stream", g_.op_event_stream.size(), count);
    expect_length("op_peer", g_.op_peer.size(), count);
    expect_length("op_host_ns", g_.op_host_ns.size(), count);
    expect_length("op_tag", g_.op_tag.size(), count);
    expect_length("op_duration_ns", g_.op_duration_ns.size(), count);
    expect_length("op_bytes", g_.op_bytes.size(), count);
    check_offsets("block_offsets", g_.block_offsets, count, 1);
    const std::size_t blocks = g_.block_offsets.size() - 1;
    if (blocks > 0xffffffffU) fail("block_offsets: more than 2^32 blocks");
    iteration_marks_.assign(blocks, 0);
    for (std::size_t b = 0; b < blocks; ++b) check_block(b);
  }

  void check_block(std::size_t block) {
    const OpLimits limits{g_.kernel_names.size(), strings()};
    const std::uint64_t last = g_.block_offsets[block + 1] - 1;
    Op before;
    for (std::uint64_t i = g_.block_offsets[block]; i <= last; ++i) {
      const Op op = g_.op(i);
      if (!is_sound(op, limits)) fail("op " + number(i) + ": " + describe_fault(op, limits));
      if (!may_follow(before, op)) {
        fail("op " + number(i) + ": " + std::string(name(op.kind)) +
             " inside a grouped launch, expected a communication op");
      }
      if (closes_block(op) && i != last) {
        fail("op " + number(i) + ": closes a block before the end of block " + number(block));
      }
      if (op.kind == OpKind::mark && op.detail == static_cast<std::uint8_t>(MarkKind::iteration)) {
        ++iteration_marks_[block];
      }
      before = op;
    }
    if (before.continues()) {
      fail("op " + number(last) + ": block ends inside a grouped launch");
    }
  }

  void check_programs() {
    check_offsets("program_offsets", g_.program_offsets, g_.program_blocks.size(), 0);
    expect_length("program_call_sites", g_.program_call_sites.size(), g_.program_blocks.size());
    const std::size_t blocks = g_.block_offsets.size() - 1;
    for (std::size_t i = 0; i < g_.program_blocks.size(); ++i) {
      expect_below("program_blocks", i, g_.program_blocks[i], blocks);
      expect_below("program_call_sites", i, g_.program_call_sites[i], strings());
    }
    for (std::size_t p = 0; p + 1 < g_.program_offsets.size(); ++p) {
      for (std::uint64_t i = g_.program_offsets[p]; i + 1 < g_.program_offsets[p + 1]; ++i) {
        const std::uint64_t end = g_.block_offsets[g_.program_blocks[i] + 1];
        if (!may_end_block(static_cast<OpKind>(g_.op_kind[end - 1]))) {
          fail("program " + number(p) + ": block " + number(g_.program_blocks[i]) +
               " ends without communication or a host synchronisation, expected only of a "
               "program's last "
               "block");
        }
      }
    }
  }

  const Needs& needs_of(std::uint32_t program, std::size_t slots) {
    Needs& needs = needs_[program];
    if (needs.known) return needs;
    needs.known = true;
    for (std::uint64_t i = g_.program_offsets[program]; i < g_.program_offsets[program + 1]; ++i) {
      const std::uint32_t block = g_.program_blocks[i];
      needs.iterations += iteration_marks_[block];
      // Communication ops of a block are the parts of the launch that ends it.
      for (std::uint64_t k = g_.block_offsets[block + 1]; k > g_.block_offsets[block]; --k) {
        const Op op = g_.op(k - 1);
        if (!is_communication(op.kind)) break;
        if (op.ref >= slots) {
          fail("op " + number(k - 1) + ": communicator slot " + number(op.ref) +
               " found, a rank of" + " program " + number(program) + " has " + number(slots));
        }
        if (op.ref >= needs.sizes.size()) needs.sizes.resize(op.ref + 1, 0);
        needs.sizes[op.ref] = std::max(needs.sizes[op.ref], needed_size(op));
      }
    }
    return needs;
  }

  void check_ranks() {
    const std::size_t count = g_.rank_ids.size();
    expect_length("rank_programs", g_.rank_programs.size(), count);
    expect_length("rank_origins", g_.rank_origins.size(), count);
    expect_length("rank_peaks", g_.rank_peaks.size(), count);
    expect_length("binding_offsets", g_.binding_offsets.size(), count + 1);
    check_offsets("binding_offsets", g_.binding_offsets, g_.bindings.size(), 0);
    needs_.resize(g_.program_offsets.size() - 1);
    std::uint64_t iterations = 0;
    for (std::size_t i = 0; i < count; ++i) {
      expect_below("rank_ids", i, g_.rank_ids[i], g_.world_size);
      if (i > 0 && g_.rank_ids[i] <= g_.rank_ids[i - 1]) {
        fail("rank_ids[" + number(i) + "]: " + number(g_.rank_ids[i]) + " found after " +
             number(g_.rank_ids[i - 1]) + ", expected rising ranks");
      }
      expect_below("rank_programs", i, g_.rank_programs[i], g_.program_offsets.size() - 1);
      expect_below("rank_origins", i, g_.rank_origins[i], 3);
      const Needs& needs =
          needs_of(g_.rank_programs[i], g_.binding_offsets[i + 1] - g_.binding_offsets[i]);
      check_bindings(i, needs);
      iterations = std::max(iterations, needs.iterations);
    }
    if (iterations != g_.iterations) {
      fail("iterations: " + number(g_.iterations) + " found in the header, " + number(iterations) +
           " in the programs");
    }
  }

  void check_bindings(std::size_t at, const Needs& needs) const {
    const std::string rank = "rank " + number(g_.rank_ids[at]);
    const std::uint64_t from = g_.binding_offsets[at];
    const std::uint64_t count = g_.binding_offsets[at + 1] - from;
    for (std::uint64_t i = from; i < from + count; ++i) {
      const Binding& binding = g_.bindings[i];
      expect_below("bindings", i, binding.communicator, g_.communicator_names.size());
      const std::uint64_t first = g_.communicator_offsets[binding.communicator];
      const std::uint64_t size = g_.communicator_offsets[binding.communicator + 1] - first;
      if (binding.position >= size ||
          g_.communicator_members[first + binding.position] != g_.rank_ids[at]) {
        fail(rank + ": slot " + number(i - from) + " says position " + number(binding.position) +
             " of communicator " + number(binding.communicator) + ", where the rank is not");
      }
    }
    if (const auto twice = bound_twice(g_.bindings.subspan(from, count))) {
      fail(rank + ": slots " + number(twice->first) + " and " + number(twice->second) +
           " are both of communicator " + number(g_.bindings[from + twice->first].communicator) +
           ", expected one slot for each");
    }
    if (needs.sizes.size() > count) {
      fail(rank + ": " + number(count) + " communicator slots found, its program uses " +
           number(needs.sizes.size()));
    }
    for (std::size_t slot = 0; slot < needs.sizes.size(); ++slot) {
      const std::uint32_t id = g_.bindings[from + slot].communicator;
      const std::uint64_t size = g_.communicator_offsets[id + 1] - g_.communicator_offsets[id];
      if (needs.sizes[slot] > size) {
        fail(rank + ": its program names position " + number(needs.sizes[slot] - 1) +
             " of communicator " + number(id) + ", which has " + number(size));
      }
    }
  }

  const Graph::Impl& g_;
  std::string_view origin_;
  std::vector<std::uint32_t> iteration_marks_;  // by block
  std::vector<Needs> needs_;                    // by program
};

}  // namespace

void check_contents(const Graph::Impl& graph, std::string_view origin) {
  Contents(graph, origin).check();
}

}  // namespace prism
