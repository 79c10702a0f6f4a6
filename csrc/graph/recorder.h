// Records the ops of one rank. The hot path is append(): it writes into one buffer and, when a
// block closes, keeps it only if its content is new. No allocation once the buffers are warm.
// Not thread-safe: the caller serialises (recording threads of a rank alternate anyway).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace prism {

class Recorder {
 public:
  Recorder(std::uint32_t rank, std::uint32_t world_size);
  ~Recorder();
  Recorder(Recorder&&) noexcept;
  Recorder& operator=(Recorder&&) noexcept;

  void append(const Op& op);
  // Interning. Ids are local to this recorder; merging renames them.
  std::uint32_t string(std::string_view text);
  std::uint32_t kernel(std::string_view name, const KernelShape& shape);
  // A new communicator slot; members may be set later, before finish().
  std::uint32_t add_communicator(std::string_view name, std::uint32_t size, std::uint32_t position);
  void set_members(std::uint32_t slot, std::span<const std::uint32_t> members);

  std::uint64_t num_ops() const noexcept;  // appended so far, repeated blocks included
  std::uint64_t num_communication_ops() const noexcept;
  std::uint32_t num_iterations() const noexcept;  // iteration marks seen

  // Call sites in the order of communication launches; shorter lists are allowed.
  void set_call_sites(std::span<const std::uint32_t> strings);
  void set_peaks(const MemoryPeaks& peaks);
  // Closes the open block (ops after the last communication op form one of their own) and
  // returns a graph that holds this rank alone. Slots that no op uses are dropped.
  Graph finish(std::string_view metadata = "{}");

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace prism
