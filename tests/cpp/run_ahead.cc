#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "base/error.h"
#include "engine/replayer.h"
#include "graph/builder.h"

using namespace prism;

namespace {

Op plain(OpKind kind, std::uint16_t stream, std::int64_t duration = 0) {
  Op op;
  op.kind = kind;
  op.stream = stream;
  op.duration_ns = duration;
  return op;
}

Op wait_for_newest(std::uint16_t stream, std::uint16_t event_stream) {
  Op op = plain(OpKind::event_wait, stream);
  op.event_stream = event_stream;
  op.peer = 1;
  return op;
}

// Rank 0 first waits on stream 1 for a message that rank 1 sends only after `rounds` collectives,
// which rank 0's host issues later, with work on stream 1 and a wait for it on stream 2 between.
Graph waits_to_the_end(std::uint32_t rounds) {
  GraphBuilder builder(2);
  builder.kernel("k", {});
  const std::vector<std::uint32_t> members{0, 1};
  const std::uint32_t world = builder.communicator("world", members);
  Op receive = plain(OpKind::recv, 1, 1), send = plain(OpKind::send, 1, 1);
  receive.peer = send.peer = 1;
  std::vector<Op> first{receive}, second;
  for (std::uint32_t k = 0; k < rounds; ++k) {
    first.push_back(plain(OpKind::kernel, 1, 3));
    first.push_back(plain(OpKind::event_record, 1));
    first.push_back(wait_for_newest(2, 1));
    first.push_back(plain(OpKind::kernel, 2, 1));
    first.push_back(plain(OpKind::all_reduce, 0, 2));
    second.push_back(plain(OpKind::kernel, 0, 5));
    second.push_back(plain(OpKind::all_reduce, 0, 2));
    second.push_back(plain(OpKind::stream_sync, 0));
  }
  second.push_back(send);
  builder.set_rank(0, first, std::vector<Binding>{{world, 0}});
  builder.set_rank(1, second, std::vector<Binding>{{world, 1}});
  return builder.finish("{}");
}

}  // namespace

TEST_CASE("a long run-ahead looks at each of its ops a bounded number of times") {
  const ReplayOptions options;
  for (const std::uint32_t rounds : {1U, 10U, 1000U, 3000U}) {
    CAPTURE(rounds);
    const Graph graph = waits_to_the_end(rounds);
    engine::Replayer replayer(graph, options);
    const ReplayResult result = replayer.run();
    // Stream 1 starts when the message has come, stream 2 follows it kernel by kernel.
    const std::int64_t message_end = 7 * std::int64_t{rounds} + 1;
    CHECK(result.iteration_end_ns[0] == message_end + 3 * std::int64_t{rounds} + 1);
    CHECK(result.iteration_end_ns[1] == message_end);
    const std::uint64_t ahead = 5 * std::uint64_t{rounds} + 1;  // all ops of rank 0
    CHECK(replayer.looks() >= 2 * std::uint64_t{rounds});
    CHECK(replayer.looks() <= 2 * ahead);
  }
}

TEST_CASE("a grouped launch that waits is looked at as one, however many parts it has") {
  const std::uint32_t parts = 2000;
  GraphBuilder builder(2);
  builder.kernel("k", {});
  const std::vector<std::uint32_t> members{0, 1};
  const std::uint32_t world = builder.communicator("world", members);
  const auto message = [](OpKind kind, std::uint16_t stream, std::uint32_t tag) {
    Op op = plain(kind, stream, 1);
    op.peer = 1;
    op.tag = tag;
    return op;
  };
  std::vector<Op> first{message(OpKind::recv, 1, 9)}, second{message(OpKind::send, 1, 8)};
  for (std::uint32_t k = 0; k < parts; ++k) {
    first.push_back(message(OpKind::recv, static_cast<std::uint16_t>(k % 2 + 1), 0));
    second.push_back(message(OpKind::send, static_cast<std::uint16_t>(k % 2 + 1), 0));
    for (auto* ops : {&first, &second}) {
      if (k + 1 < parts) ops->back().flags |= Op::group_continues;
    }
  }
  first.push_back(message(OpKind::recv, 1, 8));
  second.push_back(message(OpKind::send, 1, 9));
  for (std::uint32_t r = 0; r < 2; ++r) {
    builder.set_rank(r, r == 0 ? first : second, std::vector<Binding>{{world, r}});
  }
  const Graph graph = builder.finish("{}");
  const ReplayOptions options;
  engine::Replayer replayer(graph, options);
  // Stream 1 carries 9, the group, 8 on rank 0 and 8, the group, 9 on rank 1: they lock up.
  CHECK_THROWS_AS(replayer.run(), DeadlockError);
  CHECK(replayer.looks() <= 8);
}
