#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/outside.h"
#include "random_job.h"

using namespace prism;
using test::Job;
using test::plain;
using test::random_job;

namespace {

// Ranks that post ops, a few at a time in random turns. They ask for the time of every
// synchronisation; with `polls` they ask whether a stream is done, until it is, before each.
class Script : public OutsideRanks {
 public:
  Script(const Job& job, std::vector<std::uint32_t> ranks, std::uint32_t seed, bool polls = false)
      : job_(job), ranks_(std::move(ranks)), random_(seed), polls_(polls), of_(ranks_.size()) {}

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
    post = test::post_of(job_, ranks_[i], op);
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
    ClusterProfile wiring;
    wiring.gpus_per_node = 2;
    options.wiring = &wiring;
    Perturbation& p = options.perturbation;
    if (seed % 3 == 0) p.slow_ranks.push_back({seed % world, 1.5, 100, 5000});
    if (seed % 4 == 0) p.jitter = {seed, 0.5};
    if (seed % 5 == 0) p.slow_links.push_back({0, 1, 3.0, 0, 4000});
    if (seed % 7 == 0) p.slow_links.push_back({1, SlowLink::every, 1.25});
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

TEST_CASE("a rank that polls otherwise than it recorded is named") {
  const Job job = random_job(1001, 3, 40);
  const auto& ops = job.ranks[0];
  const auto sync = std::find_if(ops.begin(), ops.end(),
                                 [](const Op& op) { return op.kind == OpKind::stream_sync; });
  REQUIRE(sync != ops.end());
  const auto warnings = [&](bool polls) {
    Script script(job, {0}, 7, polls);
    return emulate(job.graph, {}, script).warnings;
  };
  CHECK(warnings(false).empty());
  REQUIRE(warnings(true).size() == 1);
  const std::string text = warnings(true).front();
  CHECK(text.find("rank 0 asked ") == 0);
  CHECK(text.find("and 0 times where it recorded, first before op " +
                  std::to_string(sync - ops.begin()) + ":") != std::string::npos);
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
