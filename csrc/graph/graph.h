// The execution graph: read-only, over one contiguous buffer that is either a mapped .prism file
// or memory that a Recorder or GraphBuilder filled. Both are the same bytes (docs/format.md).
// A graph may lack ranks (one slice, a partial collection); `ranks()` says which it holds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/kernel.h"
#include "graph/op.h"

namespace prism {

enum class RankOrigin : std::uint8_t {
  ran = 0,
  checked = 1,
  inferred = 2
};  // checked: ran, to confirm its class

struct MemoryPeaks {
  std::int64_t requested_bytes = 0;
  std::int64_t allocated_bytes = 0;
  std::int64_t reserved_bytes = 0;
  std::int64_t device_bytes = 0;  // reserved + context + communicator buffers
  friend bool operator==(const MemoryPeaks&, const MemoryPeaks&) = default;
};

// A communicator slot of a rank: which communicator, and the rank's position in it.
struct Binding {
  std::uint32_t communicator = 0;
  std::uint32_t position = 0;
  friend bool operator==(const Binding&, const Binding&) = default;
};

struct CommunicatorView {
  std::string_view name;  // torch's "<description>:<uid>" or the builder's name
  std::span<const std::uint32_t> members;
};

struct ProgramView {
  std::span<const std::uint32_t> blocks;
  std::span<const std::uint32_t>
      call_sites;  // per block, string id of its closing op's call site; 0 = not known
};

struct RankView {
  std::uint32_t rank = 0;
  std::uint32_t program = 0;
  RankOrigin origin = RankOrigin::ran;
  MemoryPeaks peaks;
  std::span<const Binding> bindings;  // by communicator slot
};

class Graph {
 public:
  static Graph open(const std::filesystem::path& path);   // maps; GraphFormatError on damage
  static Graph from_bytes(std::vector<std::byte> bytes);  // takes ownership; same checks
  void save(const std::filesystem::path& path) const;     // whole or not at all (rename)
  std::span<const std::byte> bytes() const noexcept;

  std::uint32_t world_size() const noexcept;
  std::uint32_t iterations() const noexcept;
  std::string_view metadata()
      const noexcept;  // JSON: device, cluster (text), command, version, warm-up, spread, ...

  std::span<const std::uint32_t> ranks() const noexcept;  // ascending
  bool has_rank(std::uint32_t rank) const noexcept;
  RankView rank(std::uint32_t rank) const;  // GraphError if absent

  std::size_t num_blocks() const noexcept;
  std::uint64_t num_ops() const noexcept;                         // stored, not expanded
  std::span<const std::uint64_t> block_offsets() const noexcept;  // num_blocks + 1, into ops
  std::size_t block_size(std::uint32_t block) const;
  Op op(std::uint64_t index) const;
  void read_block(std::uint32_t block, std::vector<Op>& out) const;  // appends

  std::size_t num_programs() const noexcept;
  ProgramView program(std::uint32_t id) const;
  // Names the rank class that runs a program: the lowest program with the same blocks. Programs of
  // one class differ in call sites alone. Found for all programs when first asked for.
  std::uint32_t rank_class(std::uint32_t program) const;

  std::size_t num_communicators() const noexcept;
  CommunicatorView communicator(std::uint32_t id) const;

  std::size_t num_kernels() const noexcept;
  std::string_view kernel_name(std::uint32_t id) const;
  const KernelShape& kernel_shape(std::uint32_t id) const;

  std::size_t num_strings() const noexcept;
  std::string_view string(std::uint32_t id) const;  // id 0 is ""

  struct Impl;  // csrc/graph/image.h

 private:
  friend struct GraphAccess;
  explicit Graph(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace prism
