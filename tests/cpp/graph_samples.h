// Graphs for tests, made op by op.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/graph.h"
#include "graph/op.h"

namespace prism::samples {

inline Op kernel(std::uint32_t id, std::int64_t duration_ns) {
  Op op;
  op.kind = OpKind::kernel;
  op.ref = id;
  op.duration_ns = duration_ns;
  op.flags = static_cast<std::uint8_t>(Provenance::model);
  return op;
}

inline Op collective(OpKind kind, std::uint32_t slot, std::int64_t bytes) {
  Op op;
  op.kind = kind;
  op.ref = slot;
  op.bytes = bytes;
  op.dtype = DataType::bfloat16;
  return op;
}

inline Op part(OpKind kind, std::uint32_t slot, std::uint32_t peer, bool continues) {
  Op op = collective(kind, slot, 8);
  op.peer = peer;
  if (continues) op.flags |= Op::group_continues;
  return op;
}

inline Op mark(MarkKind kind, std::uint32_t label) {
  Op op;
  op.kind = OpKind::mark;
  op.detail = static_cast<std::uint8_t>(kind);
  op.ref = label;
  return op;
}

inline std::vector<std::byte> copy_of(const Graph& graph) {
  return {graph.bytes().begin(), graph.bytes().end()};
}

// Through every check of a file from outside.
inline Graph reread(const Graph& graph) { return Graph::from_bytes(copy_of(graph)); }

inline std::vector<Op> expanded(const Graph& graph, std::uint32_t rank) {
  std::vector<Op> ops;
  for (const std::uint32_t block : graph.program(graph.rank(rank).program).blocks) {
    graph.read_block(block, ops);
  }
  return ops;
}

// Four ranks in a ring, with a second communicator of pairs: every section holds something.
inline Graph ring() {
  GraphBuilder builder(4);
  const std::uint32_t gemm = builder.kernel("gemm", {.gemm = {2, 3, 4, 1}});
  const std::uint32_t label = builder.string("step");
  const std::uint32_t site = builder.string("train.py:12");
  const std::uint32_t world = builder.communicator("world", std::vector<std::uint32_t>{0, 1, 2, 3});
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    const std::uint32_t pair =
        builder.communicator("pair", std::vector<std::uint32_t>{rank / 2 * 2 + 1, rank / 2 * 2});
    std::vector<Op> ops;
    for (int i = 0; i < 2; ++i) {
      ops.push_back(kernel(gemm, 10 + rank % 2));
      ops.push_back(part(OpKind::send, 0, 1, true));
      ops.push_back(part(OpKind::recv, 0, 3, false));
      ops.push_back(collective(OpKind::all_reduce, 1, 1024));
      ops.push_back(mark(MarkKind::iteration, label));
    }
    ops.push_back(kernel(gemm, 1));
    builder.set_rank(rank, ops, std::vector<Binding>{{world, rank}, {pair, 1 - rank % 2}},
                     std::vector<std::uint32_t>{site}, {1, 2, 3, rank});
  }
  return builder.finish(R"({"device":"none"})");
}

}  // namespace prism::samples
