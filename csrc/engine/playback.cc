#include "engine/playback.h"

#include <vector>

namespace prism {

void play_back(const Graph& graph, std::uint32_t rank, Port& port) {
  const RankView view = graph.rank(rank);
  std::vector<std::uint64_t> kernels, communicators;
  for (std::uint32_t k = 0; k < graph.num_kernels(); ++k) {
    kernels.push_back(kernel_identity(graph.kernel_name(k), graph.kernel_shape(k)));
  }
  for (const Binding& binding : view.bindings) {
    const CommunicatorView communicator = graph.communicator(binding.communicator);
    communicators.push_back(communicator_identity(communicator.name, communicator.members));
  }
  std::vector<Op> ops;
  for (const std::uint32_t block : graph.program(view.program).blocks) {
    ops.clear();
    graph.read_block(block, ops);
    for (const Op& op : ops) {
      Post post;
      post.op = op;
      if (op.kind == OpKind::kernel) post.what = kernels[op.ref];
      if (is_communication(op.kind)) post.what = communicators[op.ref];
      if (op.kind == OpKind::query) post.ask = Ask::event_done;
      if (is_host_sync(op.kind) || (op.is_blocking() && !op.continues())) {
        post.ask = Ask::host_time;
      }
      if (post.ask == Ask::nothing) {
        port.post(post);
      } else {
        port.ask(post);
      }
    }
  }
  Post end;
  end.ended = true;
  port.post(end);
}

}  // namespace prism
