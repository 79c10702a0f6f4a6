#include "engine/replay.h"

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/builder.h"

using namespace prism;

namespace {

Op kernel(std::int64_t duration, std::uint32_t host = 0, std::uint16_t stream = 0) {
  Op op;
  op.kind = OpKind::kernel;
  op.duration_ns = duration;
  op.host_ns = host;
  op.stream = stream;
  return op;
}

Op plain(OpKind kind, std::uint16_t stream = 0) {
  Op op;
  op.kind = kind;
  op.stream = stream;
  return op;
}

Op event(OpKind kind, std::uint16_t stream, std::uint16_t event_stream, std::uint32_t back = 1) {
  Op op = plain(kind, stream);
  op.event_stream = event_stream;
  op.peer = back;
  return op;
}

Op collective(OpKind kind, std::uint32_t slot, std::int64_t bytes, std::int64_t duration,
              std::uint16_t stream = 0) {
  Op op = plain(kind, stream);
  op.ref = slot;
  op.bytes = bytes;
  op.duration_ns = duration;
  op.dtype = DataType::float32;
  return op;
}

Op message(OpKind kind, std::uint32_t slot, std::uint32_t peer, std::int64_t bytes,
           std::int64_t duration, std::uint16_t stream = 0) {
  Op op = collective(kind, slot, bytes, duration, stream);
  op.peer = peer;
  return op;
}

Op grouped(Op op) {
  op.flags |= Op::group_continues;
  return op;
}

// Ranks over one communicator of all of them; `sites` by rank, of all its launches.
Graph world(const std::vector<std::vector<Op>>& ranks, std::string_view metadata = "{}",
            const std::vector<std::string>& sites = {}) {
  GraphBuilder builder(static_cast<std::uint32_t>(ranks.size()));
  builder.kernel("k", {});
  std::vector<std::uint32_t> members;
  for (std::uint32_t r = 0; r < ranks.size(); ++r) members.push_back(r);
  const std::uint32_t id = builder.communicator("world", members);
  for (std::uint32_t r = 0; r < ranks.size(); ++r) {
    const std::vector<Binding> bindings{{id, r}};
    std::vector<std::uint32_t> call_sites;
    if (!sites.empty()) call_sites.assign(ranks[r].size(), builder.string(sites[r]));
    builder.set_rank(r, ranks[r], bindings, call_sites);
  }
  return builder.finish(metadata);
}

template <class ErrorType>
std::string message_of(const Graph& graph, const ReplayOptions& options = {}) {
  try {
    replay(graph, options);
  } catch (const ErrorType& e) {
    return e.what();
  }
  return "no error";
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a collective starts with its last member and ends for all at once") {
  const Graph graph = world({{kernel(100), collective(OpKind::all_reduce, 0, 64, 30), kernel(5)},
                             {kernel(160), collective(OpKind::all_reduce, 0, 64, 30)}});
  const ReplayResult result = replay(graph, {});
  CHECK(result.iteration_end_ns == std::vector<std::int64_t>{195, 190});
  CHECK(result.iteration_time_ns == std::vector<std::int64_t>{195});
  CHECK(result.events == 5);
  CHECK(result.splits[0] == TimeSplit{105, 30, 30, 60, 0, 0});
  CHECK(result.splits[1] == TimeSplit{160, 30, 30, 0, 0, 0});
}

TEST_CASE("the longest of differing durations counts, with a warning") {
  const ReplayResult result = replay(world({{collective(OpKind::all_reduce, 0, 64, 30)},
                                            {collective(OpKind::all_reduce, 0, 64, 40)}}),
                                     {});
  CHECK(result.iteration_time_ns[0] == 40);
  REQUIRE(result.warnings.size() == 1);
  CHECK(contains(result.warnings[0], "1 communication ops"));
}

TEST_CASE("an asynchronous collective overlaps compute until someone waits") {
  // Stream 1 communicates behind an event; the compute stream waits for it later.
  const std::vector<Op> ops{kernel(100),
                            plain(OpKind::event_record, 0),
                            event(OpKind::event_wait, 1, 0),
                            collective(OpKind::all_reduce, 0, 64, 50, 1),
                            plain(OpKind::event_record, 1),
                            kernel(30),
                            event(OpKind::event_wait, 0, 1),
                            kernel(10)};
  const ReplayResult result = replay(world({ops, ops}), {});
  CHECK(result.iteration_time_ns[0] == 160);
  CHECK(result.splits[0] == TimeSplit{140, 50, 20, 0, 0, 0});
}

TEST_CASE("grouped exchanges around a ring are ready together; ungrouped sends lock up") {
  std::vector<std::vector<Op>> ring, crossed;
  for (int r = 0; r < 5; ++r) {
    const Op send = message(OpKind::send, 0, 1, 1024, 7),
             recv = message(OpKind::recv, 0, 4, 1024, 7);
    ring.push_back({kernel(10 * r), grouped(send), recv});
    crossed.push_back({kernel(10 * r), send, recv});
  }
  const ReplayResult result = replay(world(ring), {});
  CHECK(result.iteration_end_ns == std::vector<std::int64_t>{47, 27, 37, 47, 47});
  const std::string text = message_of<DeadlockError>(world(crossed));
  CHECK(contains(text, "5 of 5 ranks"));
  CHECK(contains(text,
                 "rank 0 op 1 (send float32 of 1024 bytes) waits on communicator 'world' for "
                 "rank 1"));
  ReplayOptions eager;
  eager.eager_bytes = 1024;
  CHECK(replay(world(crossed), eager).iteration_end_ns ==
        std::vector<std::int64_t>{47, 24, 34, 44, 54});
}

TEST_CASE("the host runs ahead of a stream that waits: what a peer needs is still launched") {
  // Rank 0 issues A on stream 1, an op behind it, then B on stream 2. Rank 1 issues A only after
  // its device is done with B.
  const Op a0 = message(OpKind::send, 0, 1, 64, 5, 1), b0 = message(OpKind::recv, 0, 1, 64, 3, 2);
  const Op a1 = message(OpKind::recv, 0, 1, 64, 5, 1), b1 = message(OpKind::send, 0, 1, 64, 3, 2);
  const Graph graph = world({{a0, plain(OpKind::event_record, 1), kernel(4, 0, 1),
                              event(OpKind::event_wait, 0, 1), kernel(1), b0},
                             {kernel(20, 0, 2), b1, plain(OpKind::device_sync), a1}});
  const ReplayResult result = replay(graph, {});
  // B: 20 to 23; A: 23 to 28; rank 0 then runs 28 to 32 on stream 1 and 28 to 29 on stream 0.
  CHECK(result.iteration_end_ns == std::vector<std::int64_t>{32, 28});
  CHECK(result.splits[0] == TimeSplit{4, 8, 8, 20, 0, 0});
}

TEST_CASE("members that disagree are named with op numbers") {
  std::string text =
      message_of<MismatchError>(world({{kernel(1), collective(OpKind::all_reduce, 0, 64, 1)},
                                       {collective(OpKind::all_to_all, 0, 64, 1)}}));
  CHECK(contains(text, "communicator 'world'"));
  CHECK(contains(text, "different kinds"));
  CHECK(contains(text, "rank 0 op 1 (all_reduce sum float32 of 64 bytes)"));
  CHECK(contains(text, "rank 1 op 0 (all_to_all float32 of 64 bytes)"));
  text = message_of<MismatchError>(
      world({{message(OpKind::send, 0, 1, 64, 1)}, {message(OpKind::recv, 0, 1, 72, 1)}}));
  CHECK(contains(text, "different sizes"));
  CHECK(contains(text, "72 bytes"));
}

TEST_CASE("ranks that do the same are named with their own call sites") {
  const std::vector<std::string> sites{"train.py:10", "other.py:20"};
  const std::vector<Op> waits{message(OpKind::recv, 0, 1, 8, 1), message(OpKind::send, 0, 1, 8, 1)};
  const Graph locked = world({waits, waits}, "{}", sites);
  REQUIRE(locked.rank_class(locked.rank(1).program) == locked.rank(0).program);
  std::string text = message_of<DeadlockError>(locked);
  CHECK(contains(text, "rank 0 op 0 (recv float32 of 8 bytes) at train.py:10"));
  CHECK(contains(text, "rank 1 op 0 (recv float32 of 8 bytes) at other.py:20"));
  // What each sends is not what the other expects.
  const std::vector<Op> uneven{grouped(message(OpKind::send, 0, 1, 64, 1)),
                               message(OpKind::recv, 0, 1, 72, 1)};
  text = message_of<MismatchError>(world({uneven, uneven}, "{}", sites));
  CHECK(contains(text, "at train.py:10"));
  CHECK(contains(text, "at other.py:20"));
  // Nothing else changes, whatever the call sites are.
  const std::vector<Op> steps{kernel(3), collective(OpKind::all_reduce, 0, 64, 5), kernel(7)};
  const ReplayResult shared = replay(world({steps, steps}), {});
  const ReplayResult own = replay(world({steps, steps}, "{}", sites), {});
  CHECK(own.iteration_time_ns == shared.iteration_time_ns);
  CHECK(own.splits == shared.splits);
  CHECK(own.events == shared.events);
}

TEST_CASE("ranks that cannot go on are a result where they are to be one") {
  ReplayOptions options;
  options.keep_stuck = true;
  options.timeline_ranks = {0, 1};
  const Op all = collective(OpKind::all_reduce, 0, 64, 5);
  Op mark = plain(OpKind::mark);
  mark.detail = static_cast<std::uint8_t>(MarkKind::iteration);
  // Both end an iteration; then rank 0 waits for a collective that rank 1 leaves out.
  const Graph missing =
      world({{kernel(10), all, mark, kernel(3), all, kernel(1)}, {kernel(20), all, mark}});
  CHECK(contains(message_of<DeadlockError>(missing), "for rank 1"));
  ReplayResult result = replay(missing, options);
  REQUIRE(result.failure.has_value());
  CHECK(result.failure->failed.empty());
  REQUIRE(result.failure->waits.size() == 1);
  const Wait& wait = result.failure->waits[0];
  CHECK(wait.missing == std::vector<std::uint32_t>{1});
  CHECK(wait.failed.empty());
  CHECK(wait.number == 1);
  CHECK(wait.ranks == std::vector<WaitingRank>{{0, 4, "", 28}});
  CHECK(result.iteration_time_ns == std::vector<std::int64_t>{25});
  CHECK(result.timeline.size() == 2 + 1 + 2);  // of the last kernel and collective nothing
  // Members that disagree: none is missing. A third comes later still.
  for (const Op& other :
       {collective(OpKind::all_to_all, 0, 64, 1), message(OpKind::recv, 0, 1, 8, 1)}) {
    const Op one = is_point_to_point(other.kind) ? message(OpKind::send, 0, 1, 64, 1) : all;
    std::vector<std::vector<Op>> ops{{kernel(1), one}, {other}};
    if (!is_point_to_point(other.kind)) ops.push_back({kernel(9), all, kernel(2)});
    const Graph odd = world(ops);
    message_of<MismatchError>(odd);
    result = replay(odd, options);
    REQUIRE(result.failure.has_value());
    std::size_t waiting = 0;
    for (const Wait& w : result.failure->waits) waiting += w.ranks.size();
    CHECK(waiting == ops.size());
    CHECK(result.iterations == 0);
  }
  const ReplayResult runs = replay(world({{all}, {all}}), options);
  CHECK(!runs.failure.has_value());
  CHECK(runs.iteration_time_ns == std::vector<std::int64_t>{5});
}

TEST_CASE("a slow rank's kernels round half up, inside its window only") {
  const Graph graph = world({{kernel(3), kernel(5), kernel(5)}});
  ReplayOptions options;
  options.perturbation.slow_ranks = {{0, 1.5, 5, 9}};  // the second starts at 3, the third at 8
  CHECK(replay(graph, options).iteration_time_ns[0] == 3 + 5 + 8);
  options.perturbation.slow_ranks = {{0, 1.5, 0, INT64_MAX}};
  CHECK(replay(graph, options).iteration_time_ns[0] == 5 + 8 + 8);
  options.perturbation.slow_ranks = {{1, 1.5, 0, INT64_MAX}};
  CHECK(contains(message_of<GraphError>(graph, options), "rank 1"));
}

TEST_CASE("live bytes and their peak") {
  const auto memory = [](OpKind kind, std::int64_t bytes) {
    Op op = plain(kind);
    op.bytes = bytes;
    return op;
  };
  const Graph graph = world({{memory(OpKind::allocate, 100), memory(OpKind::allocate, 50),
                              collective(OpKind::all_reduce, 0, 8, 1), memory(OpKind::free, 100),
                              memory(OpKind::allocate, 70)}});
  const MemoryCurve curve = memory_curve(graph, 0);
  CHECK(curve.live_bytes == std::vector<std::int64_t>{100, 150, 50, 120});
  CHECK(curve.peak_bytes == 150);
  CHECK(replay(graph, {}).peak_allocated_bytes == std::vector<std::int64_t>{150});
}

namespace {

// Legal by construction: all ranks take their ops from one order of what happens.
Graph random_job(std::uint32_t ranks, std::uint32_t actions, std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  const auto stream = [&] { return static_cast<std::uint16_t>(pick(3)); };
  std::vector<std::vector<Op>> ops(ranks);
  for (std::uint32_t k = 0; k < actions; ++k) {
    const std::uint32_t a = pick(ranks), b = (a + 1 + pick(ranks - 1)) % ranks;
    switch (pick(8)) {
      case 0:
        for (auto& mine : ops) {
          mine.push_back(collective(OpKind::all_reduce, 0, 64, pick(40), stream()));
          if (pick(4) == 0) mine.back().flags |= Op::blocking;
        }
        break;
      case 1:
        ops[a].push_back(message(OpKind::send, 0, (b + ranks - a) % ranks, 64, pick(20), stream()));
        ops[b].push_back(message(OpKind::recv, 0, (a + ranks - b) % ranks, 64, pick(20), stream()));
        break;
      case 2:
        ops[a].push_back(plain(OpKind::event_record, stream()));
        break;
      case 3:
        ops[a].push_back(event(pick(3) == 0 ? OpKind::event_sync : OpKind::event_wait, stream(),
                               stream(), 1 + pick(3)));
        break;
      case 4:
        ops[a].push_back(
            plain(pick(2) == 0 ? OpKind::stream_sync : OpKind::host_callback, stream()));
        ops[a].back().duration_ns = pick(10);
        break;
      case 5:
        if (pick(4) == 0) {
          for (auto& mine : ops) mine.push_back(plain(OpKind::mark));
        }
        break;
      default:
        ops[a].push_back(kernel(pick(50), pick(30), stream()));
    }
  }
  // Neighbours that have nothing to do with each other change places: still legal, but only for
  // hosts that run ahead of their devices.
  const auto moves = [](const Op& op) {
    return (op.kind == OpKind::kernel || is_communication(op.kind)) && !op.is_blocking();
  };
  const auto matching = [](const Op& op) {
    const bool p2p = is_point_to_point(op.kind);
    return std::make_tuple(is_communication(op.kind), p2p, p2p ? op.kind : OpKind::all_reduce,
                           p2p ? op.peer : 0);
  };
  for (auto& mine : ops) {
    for (std::size_t k = 0; seed % 2 == 1 && k < 8 * mine.size(); ++k) {
      const std::size_t at = random() % mine.size();
      if (at + 1 == mine.size()) continue;
      Op &a = mine[at], &b = mine[at + 1];
      const bool order_matters = is_communication(a.kind) && matching(a) == matching(b);
      if (moves(a) && moves(b) && a.stream != b.stream && !order_matters) std::swap(a, b);
    }
  }
  return world(ops);
}

bool equal(const ReplayResult& a, const ReplayResult& b) {
  return a.iteration_time_ns == b.iteration_time_ns && a.splits == b.splits &&
         a.iteration_end_ns == b.iteration_end_ns && a.events == b.events &&
         a.device_time_ns == b.device_time_ns && a.warnings == b.warnings;
}

}  // namespace

TEST_CASE("threads, unfolding and a factor of one change nothing; the parts add up") {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const std::uint32_t ranks = seed % 20 == 0 ? 200 : 2 + seed % 5;
    const Graph graph = random_job(ranks, ranks == 200 ? 2000 : 120, seed);
    const ReplayResult result = replay(graph, {});
    for (std::size_t r = 0; r < result.ranks.size(); ++r) {
      std::int64_t begin = 0;
      for (std::uint32_t k = 0; k < result.iterations; ++k) {
        const TimeSplit& t = result.splits[r * result.iterations + k];
        const std::int64_t end = result.iteration_end_ns[r * result.iterations + k];
        CHECK(t.compute_ns + t.exposed_communication_ns + t.waiting_ns + t.host_ns + t.idle_ns ==
              end - begin);
        begin = end;
      }
    }
    ReplayOptions options;
    options.threads = 2;
    options.perturbation.slow_ranks = {{0, 1.0, 0, INT64_MAX}};
    options.timeline_ranks = {1};
    const ReplayResult other = replay(graph, options);
    CHECK(equal(result, other));
    options.threads = 1;
    CHECK(replay(graph, options).timeline == other.timeline);
  }
}
