#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/outside.h"
#include "graph/builder.h"

using namespace prism;

namespace {

Op plain(OpKind kind, std::uint16_t stream, std::uint32_t host_ns) {
  Op op;
  op.kind = kind;
  op.stream = stream;
  op.host_ns = host_ns;
  return op;
}

std::string numbered(const char* what, std::size_t number) {
  std::string text(what);
  text += std::to_string(number);
  return text;
}

struct Job {
  std::vector<std::vector<Op>> ranks;
  Graph graph;
};

// Ranks that meet in one global order, so that nothing can lock up, with local work between.
Job random_job(std::uint32_t seed, std::uint32_t world, int actions) {
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  std::vector<std::vector<std::uint32_t>> groups{{}};
  for (std::uint32_t r = 0; r < world; ++r) groups[0].push_back(r);
  for (std::uint32_t first = 0; first + 1 < world; first += 2) groups.push_back({first, first + 1});
  GraphBuilder builder(world);
  for (int k = 0; k < 3; ++k) builder.kernel(numbered("k", static_cast<std::size_t>(k)), {});
  std::vector<std::uint32_t> ids;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    ids.push_back(builder.communicator(numbered("group", g), groups[g]));
  }
  std::vector<std::vector<Op>> ranks(world);
  std::vector<std::vector<std::uint32_t>> records(world, std::vector<std::uint32_t>(3));
  const auto local = [&](std::uint32_t r) {
    const auto s = static_cast<std::uint16_t>(below(3));
    switch (below(8)) {
      case 0: {
        ranks[r].push_back(plain(OpKind::event_record, s, below(20)));
        ++records[r][s];
        break;
      }
      case 1: {
        Op op = plain(OpKind::event_wait, s, below(20));
        op.event_stream = static_cast<std::uint16_t>(below(3));
        if (records[r][op.event_stream] == 0) break;
        op.peer = 1 + below(std::min(records[r][op.event_stream], 4U));
        ranks[r].push_back(op);
        break;
      }
      case 2:
        if (below(3) == 0) ranks[r].push_back(plain(OpKind::stream_sync, s, 5));
        break;
      case 3:
        if (below(8) == 0) ranks[r].push_back(plain(OpKind::device_sync, 0, 5));
        break;
      default: {
        Op op = plain(OpKind::kernel, s, below(50));
        op.ref = below(3);
        op.duration_ns = below(200);
        ranks[r].push_back(op);
      }
    }
  };
  for (int a = 0; a < actions; ++a) {
    for (std::uint32_t r = 0; r < world; ++r) {
      for (std::uint32_t k = below(6); k-- > 0;) local(r);
    }
    const std::uint32_t g = below(static_cast<std::uint32_t>(groups.size()));
    const auto s = static_cast<std::uint16_t>(below(3));
    const bool message = below(2) == 0;
    for (const std::uint32_t r : groups[g]) {
      // A rank is in group 0 and in its pair's, in that order of slots.
      Op op = plain(message ? OpKind::send : OpKind::all_reduce, s, below(30));
      op.ref = g == 0 ? 0 : 1;
      op.bytes = 64 << below(6);
      op.dtype = DataType::float32;
      op.duration_ns = 100;
      if (!message) {
        op.bytes = 256;
        ranks[r].push_back(op);
        continue;
      }
      op.bytes = 512;
      op.peer = 1;
      op.flags |= Op::group_continues;
      ranks[r].push_back(op);
      op.kind = OpKind::recv;
      op.host_ns = 0;
      op.peer = static_cast<std::uint32_t>(groups[g].size()) - 1;
      op.flags = 0;
      ranks[r].push_back(op);
    }
    if (a % 8 == 7) {
      for (std::uint32_t r = 0; r < world; ++r) ranks[r].push_back(plain(OpKind::mark, 0, 0));
    }
  }
  for (std::uint32_t r = 0; r < world; ++r) {
    std::vector<Binding> bindings{{ids[0], r}};
    if (r / 2 + 1 < groups.size()) bindings.push_back({ids[1 + r / 2], r % 2});
    builder.set_rank(r, ranks[r], bindings);
  }
  return {ranks, builder.finish("{}")};
}

// Ranks that post ops, a few at a time in random turns. They ask for the time of every
// synchronisation; with `polls` they ask whether a stream is done, until it is, before each.
class Script : public OutsideRanks {
 public:
  Script(const Job& job, std::vector<std::uint32_t> ranks, std::uint32_t seed, bool polls = false)
      : job_(job), ranks_(std::move(ranks)), random_(seed), polls_(polls), of_(ranks_.size()) {
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const RankView view = job.graph.rank(ranks_[i]);
      for (const Binding& b : view.bindings) {
        const CommunicatorView c = job.graph.communicator(b.communicator);
        of_[i].communicators.push_back(communicator_identity(c.name, c.members));
      }
    }
  }

  std::span<const std::uint32_t> ranks() const noexcept override { return ranks_; }
  void take(std::size_t i, std::vector<Post>& posts) override {
    Rank& r = of_[i];
    while (r.credit > 0 && !r.asks && !r.ended) {
      --r.credit;
      posts.push_back(next(i));
    }
  }
  void wait() override {
    for (;;) {
      Rank& r = of_[random_() % of_.size()];
      if (r.asks || r.ended) continue;
      r.credit += 1 + random_() % 7;
      return;
    }
  }
  void answer(std::size_t i, std::int64_t value) override {
    Rank& r = of_[i];
    REQUIRE(r.asks);
    r.asks = false;
    answers.push_back({i, value});
    if (r.polling && value != 0) r.polling = false;
  }

  std::vector<std::pair<std::size_t, std::int64_t>> answers;

 private:
  struct Rank {
    std::size_t at = 0;
    std::size_t credit = 0;
    bool asks = false, ended = false, polling = false, polled = false;
    std::vector<std::uint64_t> communicators;
  };

  Post next(std::size_t i) {
    Rank& r = of_[i];
    const auto& ops = job_.ranks[ranks_[i]];
    Post post;
    if (r.at == ops.size()) {
      post.ended = r.ended = true;
      return post;
    }
    const Op& op = ops[r.at];
    if (polls_ && op.kind == OpKind::stream_sync && !r.polled) r.polling = r.polled = true;
    if (r.polling) {
      post.op = plain(OpKind::query, op.stream, 7);
      post.ask = Ask::stream_done;
      r.asks = true;
      return post;
    }
    r.polled = false;
    ++r.at;
    post.op = op;
    if (is_communication(op.kind)) post.what = r.communicators[op.ref];
    if (op.kind == OpKind::kernel) {
      post.what = kernel_identity(numbered("k", op.ref), {});
    }
    if (is_host_sync(op.kind)) post.ask = Ask::host_time;
    r.asks = post.ask != Ask::nothing;
    return post;
  }

  const Job& job_;
  std::vector<std::uint32_t> ranks_;
  std::mt19937 random_;
  bool polls_;
  std::vector<Rank> of_;
};

void check_equal(const ReplayResult& a, const ReplayResult& b) {
  CHECK(a.iteration_time_ns == b.iteration_time_ns);
  CHECK(a.iteration_end_ns == b.iteration_end_ns);
  CHECK(a.splits == b.splits);
}

}  // namespace

TEST_CASE("ranks outside that do what they recorded end as in the replay") {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const std::uint32_t world = 2 + seed % 5;
    const Job job = random_job(seed, world, 24);
    ReplayOptions options;
    options.eager_bytes = seed % 2 == 0 ? 0 : 1024;
    if (seed % 3 == 0) options.slow_ranks.push_back({seed % world, 1.5, 100, 5000});
    const ReplayResult want = replay(job.graph, options);
    for (std::uint32_t count = 1; count <= world; ++count) {
      CAPTURE(count);
      std::vector<std::uint32_t> ranks;
      for (std::uint32_t k = 0; k < count; ++k) ranks.push_back((seed + k) % world);
      std::sort(ranks.begin(), ranks.end());
      Script script(job, ranks, seed * 31 + count);
      check_equal(emulate(job.graph, options, script), want);
    }
  }
}

TEST_CASE("answers do not depend on who posts when") {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const std::uint32_t world = 2 + seed % 4;
    const Job job = random_job(seed + 1000, world, 24);
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t r = 0; r < world; r += 1 + seed % 2) ranks.push_back(r);
    const auto run = [&](std::uint32_t turns) {
      Script script(job, ranks, turns, true);
      ReplayResult result = emulate(job.graph, {}, script);
      std::stable_sort(script.answers.begin(), script.answers.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
      return std::pair(result.iteration_end_ns, script.answers);
    };
    const auto first = run(1);
    for (std::uint32_t turns = 2; turns < 6; ++turns) CHECK(run(turns) == first);
  }
}

TEST_CASE("a rank that leaves its recorded program is named at the first op") {
  const Job job = random_job(5, 2, 12);
  Job other = random_job(5, 2, 12);
  std::vector<Op>& ops = other.ranks[1];
  const auto at = std::find_if(ops.begin(), ops.end(),
                               [](const Op& op) { return op.kind == OpKind::all_reduce; });
  REQUIRE(at != ops.end());
  at->bytes += 4;
  Script script(other, {1}, 3);
  try {
    emulate(job.graph, {}, script);
    FAIL("it went through");
  } catch (const DivergenceError& error) {
    const std::string text = error.what();
    CHECK(text.find("rank 1 leaves its recorded program at op " +
                    std::to_string(at - ops.begin())) != std::string::npos);
    CHECK(text.find("recorded all_reduce of 256 bytes on communicator 'group") !=
          std::string::npos);
    CHECK(text.find("found all_reduce of 260 bytes") != std::string::npos);
  }
}

TEST_CASE("ranks that the graph does not hold cannot run") {
  const Job job = random_job(1, 2, 4);
  Script script(job, {0, 1}, 1);
  CHECK_NOTHROW(emulate(job.graph, {}, script));
  const Job larger = random_job(1, 4, 4);
  Script missing(larger, {3}, 1);
  CHECK_THROWS_AS(emulate(job.graph, {}, missing), GraphError);
}
