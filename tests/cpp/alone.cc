#include "engine/alone.h"

#include <doctest/doctest.h>

#include <vector>

#include "engine/replay.h"
#include "graph/builder.h"

using namespace prism;

namespace {

Op op(OpKind kind, std::int64_t duration, std::uint16_t stream = 0, std::uint32_t host = 0) {
  Op o;
  o.kind = kind;
  o.duration_ns = duration;
  o.stream = stream;
  o.host_ns = host;
  return o;
}

Graph one_rank(const std::vector<Op>& ops, std::uint32_t world) {
  GraphBuilder builder(world);
  std::vector<std::uint32_t> members;
  for (std::uint32_t r = 0; r < world; ++r) members.push_back(r);
  builder.kernel("k", {});
  const std::uint32_t id = builder.communicator("world", members);
  builder.set_rank(0, ops, std::vector<Binding>{{id, 0}});
  return builder.finish();
}

}  // namespace

TEST_CASE("a rank alone takes what replay says of a world of one") {
  Op wait = op(OpKind::event_wait, 0, 1, 2);
  wait.peer = 1;
  Op back = op(OpKind::event_wait, 0, 0, 1);
  back.event_stream = 1;
  back.peer = 1;
  Op blocking = op(OpKind::copy, 40, 0, 3);
  blocking.flags |= Op::blocking;
  std::vector<Op> ops;
  for (int i = 0; i < 3; ++i) {
    ops.push_back(op(OpKind::kernel, 100 + i, 0, 7));
    ops.push_back(op(OpKind::event_record, 0, 0, 1));
    ops.push_back(wait);
    ops.push_back(op(OpKind::all_reduce, 500, 1, 5));
    ops.push_back(op(OpKind::event_record, 0, 1, 1));
    ops.push_back(op(OpKind::kernel, 30, 0, 7));
    ops.push_back(back);
    ops.push_back(op(OpKind::kernel, 20, 0, 7));
    ops.push_back(blocking);
    ops.push_back(op(OpKind::stream_sync, 0, 0, 2));
    ops.push_back(op(OpKind::mark, 0));
  }
  const Graph graph = one_rank(ops, 1);
  const ReplayResult whole = replay(graph, {});
  CHECK(iteration_ends_alone(graph, 0) == whole.iteration_end_ns);
}

TEST_CASE("a rank alone waits for no one, and parts of a launch end together") {
  Op send = op(OpKind::send, 10, 1), recv = op(OpKind::recv, 25, 1, 4);
  send.peer = recv.peer = 1;
  send.flags |= Op::group_continues;
  const Graph graph = one_rank({op(OpKind::kernel, 50), send, recv, op(OpKind::mark, 0)}, 2);
  CHECK(iteration_ends_alone(graph, 0) == std::vector<std::int64_t>{50});
  const Graph later = one_rank({send, recv, op(OpKind::mark, 0)}, 2);
  CHECK(iteration_ends_alone(later, 0) == std::vector<std::int64_t>{29});
}
