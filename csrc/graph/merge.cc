// Takes over the ranks of another graph: ids are renamed once a block, program and communicator.
#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "graph/builder.h"
#include "graph/builder_impl.h"

namespace prism {

void GraphBuilder::merge(const Graph& graph, RankOrigin origin) {
  Impl& impl = *impl_;
  if (graph.world_size() != impl.world_size) {
    throw GraphError("a graph of world size " + std::to_string(graph.world_size()) +
                     " is merged into one of " + std::to_string(impl.world_size) +
                     ", expected the same job");
  }
  for (const std::uint32_t rank : graph.ranks()) impl.check_free(rank);

  constexpr std::uint32_t unknown = ContentTable::none;
  std::vector<std::uint32_t> kernel_ids(graph.num_kernels(), unknown);
  std::vector<std::uint32_t> string_ids(graph.num_strings(), unknown);
  std::vector<std::uint32_t> communicator_ids(graph.num_communicators(), unknown);
  const auto renamed_string = [&](std::uint32_t id) {
    if (string_ids[id] == unknown) string_ids[id] = string(graph.string(id));
    return string_ids[id];
  };
  const auto renamed_kernel = [&](std::uint32_t id) {
    if (kernel_ids[id] == unknown) {
      kernel_ids[id] = kernel(graph.kernel_name(id), graph.kernel_shape(id));
    }
    return kernel_ids[id];
  };
  const auto renamed_communicator = [&](std::uint32_t id) {
    if (communicator_ids[id] == unknown) {
      const CommunicatorView view = graph.communicator(id);
      communicator_ids[id] = communicator(view.name, view.members);
    }
    return communicator_ids[id];
  };

  std::vector<std::uint32_t> block_ids(graph.num_blocks(), unknown);
  std::vector<Op> block;
  const auto renamed_block = [&](std::uint32_t id) {
    if (block_ids[id] != unknown) return block_ids[id];
    block.clear();
    graph.read_block(id, block);
    for (Op& op : block) {
      if (op.kind == OpKind::kernel) op.ref = renamed_kernel(op.ref);
      if (op.kind == OpKind::mark) op.ref = renamed_string(op.ref);
    }
    return block_ids[id] = impl.add_block(block, hash64(std::as_bytes(std::span(block))));
  };

  std::vector<std::uint32_t> program_ids(graph.num_programs(), unknown);
  std::vector<std::uint32_t> blocks, call_sites;
  std::vector<Binding> bindings;
  for (const std::uint32_t rank : graph.ranks()) {
    const RankView view = graph.rank(rank);
    if (program_ids[view.program] == unknown) {
      const ProgramView program = graph.program(view.program);
      blocks.clear();
      call_sites.clear();
      for (const std::uint32_t id : program.blocks) blocks.push_back(renamed_block(id));
      for (const std::uint32_t id : program.call_sites) call_sites.push_back(renamed_string(id));
      program_ids[view.program] = impl.add_program(blocks, call_sites);
      impl.iterations = std::max(impl.iterations, impl.iterations_of(blocks));
    }
    bindings.clear();
    for (const Binding& binding : view.bindings) {
      bindings.push_back({renamed_communicator(binding.communicator), binding.position});
    }
    impl.add_rank(rank, program_ids[view.program], origin, bindings, view.peaks);
  }
}

}  // namespace prism
