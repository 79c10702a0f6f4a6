// Puts a graph together: from recorded ranks (merge), by inference from a rank of the same
// class, or op by op (synthetic graphs: tests, microbenchmarks, importers).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace prism {

class GraphBuilder {
 public:
  explicit GraphBuilder(std::uint32_t world_size);
  ~GraphBuilder();
  GraphBuilder(GraphBuilder&&) noexcept;
  GraphBuilder& operator=(GraphBuilder&&) noexcept;

  std::uint32_t string(std::string_view text);
  std::uint32_t kernel(std::string_view name, const KernelShape& shape);
  // Communicators are one per (name, member list); asking again returns the same id.
  std::uint32_t communicator(std::string_view name, std::span<const std::uint32_t> members);

  // Gives `rank` a program made of these ops (block cutting is done here). Slots of the ops index
  // `bindings`; call sites are one a communication launch. Ranks with equal content share one
  // program.
  void set_rank(std::uint32_t rank, std::span<const Op> ops, std::span<const Binding> bindings,
                std::span<const std::uint32_t> call_sites = {}, const MemoryPeaks& peaks = {});
  // Every rank of a recorded graph, its ids renamed.
  void merge(const Graph& graph, RankOrigin origin);
  // `rank` runs the program of `like` on its own communicators.
  void infer(std::uint32_t rank, std::uint32_t like, std::span<const Binding> bindings,
             const MemoryPeaks& peaks);
  // As infer, but with a program given as block ids of this builder (most frequent blocks).
  void infer_program(std::uint32_t rank, std::span<const std::uint32_t> blocks,
                     std::span<const std::uint32_t> call_sites, std::span<const Binding> bindings,
                     const MemoryPeaks& peaks);
  std::vector<std::uint32_t> program_of(std::uint32_t rank) const;  // block ids of this builder

  Graph finish(std::string_view metadata = "{}");

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace prism
