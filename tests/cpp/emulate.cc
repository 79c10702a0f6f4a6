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

  bool is_patient() const noexcept override { return patient; }

  std::vector<std::pair<std::size_t, std::int64_t>> answers;
  bool patient = true;

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

TEST_CASE("ranks that fail stop the same ranks outside as in the replay") {
  std::uint32_t stopped = 0, whole = 0;
  for (std::uint32_t seed = 0; seed < 120; ++seed) {
    CAPTURE(seed);
    const std::uint32_t world = 2 + seed % 5;
    const Job job = random_job(seed + 500, world, 24);
    ReplayOptions options;
    options.eager_bytes = seed % 2 == 0 ? 0 : 1024;
    Perturbation& p = options.perturbation;
    p.failures.push_back({seed % world, 50 + std::int64_t{seed} * 29});
    if (seed % 3 == 0) p.failures.push_back({(seed + 1) % world, 4000});
    if (seed % 4 == 0) p.jitter = {seed, 0.5};
    const ReplayResult want = replay(job.graph, options);
    REQUIRE(want.failure);
    ++(want.failure->waits.empty() ? whole : stopped);
    for (std::uint32_t count = 1; count <= world; ++count) {
      CAPTURE(count);
      std::vector<std::uint32_t> ranks;
      for (std::uint32_t k = 0; k < count; ++k) ranks.push_back((seed + k) % world);
      std::sort(ranks.begin(), ranks.end());
      Script script(job, ranks, seed * 31 + count);
      const ReplayResult found = emulate(job.graph, options, script);
      check_equal(found, want);
      CHECK(found.failure == want.failure);
    }
  }
  CHECK(stopped > 20);
  CHECK(whole > 5);
}

TEST_CASE("a rank that polls for what a failed one was to do is told to stop") {
  const Job job = random_job(1001, 2, 40);
  ReplayOptions options;
  options.perturbation.failures.push_back({1, 300});
  const ReplayResult want = replay(job.graph, options);
  REQUIRE(want.failure);
  REQUIRE(!want.failure->waits.empty());
  Script script(job, {0}, 7, true);
  const ReplayResult found = emulate(job.graph, options, script);
  REQUIRE(found.failure);
  REQUIRE(found.failure->waits.size() == 1);
  CHECK(found.failure->waits[0].failed == std::vector<std::uint32_t>{1});
}

TEST_CASE("a rank that polls for what nobody will do is in a deadlock") {
  Op all = plain(OpKind::all_reduce, 0, 5);
  all.bytes = 256;
  all.dtype = DataType::float32;
  all.duration_ns = 100;
  const Op sync = plain(OpKind::stream_sync, 0, 5);
  const Job job = test::job_of({{all, all, sync}, {all, sync}});  // one more on rank 0
  for (const bool patient : {true, false}) {
    CAPTURE(patient);
    Script script(job, {0}, 7, true);
    script.patient = patient;
    std::string told;
    try {
      emulate(job.graph, {}, script);
    } catch (const DeadlockError& error) {
      told = error.what();
    }
    CAPTURE(told);
    CHECK(told.find("rank 0 op 1 (all_reduce sum float32 of 256 bytes) polls on communicator "
                    "'group0' (collective 1) for rank 1") != std::string::npos);
    CHECK(told.find("rank 1 ended its program after 2 ops and never came") != std::string::npos);
    CHECK(script.answers.size() / 100 == (patient ? 10'000 : 0));  // and some that are known
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
  const auto odd_polls = [&](bool polls) {
    Script script(job, {0}, 7, polls);
    return emulate(job.graph, {}, script).odd_polls;
  };
  CHECK(odd_polls(false).empty());
  REQUIRE(odd_polls(true).size() == 1);
  const OddPolls odd = odd_polls(true).front();
  CHECK(odd.rank == 0);
  CHECK(odd.asked > 0);
  CHECK(odd.recorded == 0);
  CHECK(odd.op == static_cast<std::uint64_t>(sync - ops.begin()));
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

namespace {

// The job in which the ranks `outside` communicate other sizes, and whoever meets them too; of
// eager messages, which leave without their receiver, those they send. These ranks also have
// kernels of their own.
Job changed(const Job& job, const std::vector<std::uint32_t>& outside, bool eager) {
  const auto world = static_cast<std::uint32_t>(job.ranks.size());
  const auto runs = [&](std::uint32_t r) {
    return std::find(outside.begin(), outside.end(), r) != outside.end();
  };
  std::vector<std::vector<Op>> ranks = job.ranks;
  for (std::uint32_t r = 0; r < world; ++r) {
    std::vector<Op> ops;
    for (Op op : ranks[r]) {
      if (is_communication(op.kind)) {
        const std::uint32_t size = op.ref == 0 ? world : 2;
        const std::uint32_t first = op.ref == 0 ? 0 : r - r % 2;
        bool touched = runs(r);
        if (op.kind == OpKind::all_reduce) {
          for (std::uint32_t m = 0; m < size; ++m) touched = touched || runs(first + m);
        } else {
          const std::uint32_t peer = first + (r - first + op.peer) % size;
          touched = eager ? runs(op.kind == OpKind::send ? r : peer) : touched || runs(peer);
        }
        if (touched) {
          op.bytes *= 3;
          op.duration_ns += 555;
        }
      }
      const bool inside_group = !ops.empty() && ops.back().continues();
      if (runs(r) && !inside_group && ops.size() % 5 == 0) {
        Op extra = plain(OpKind::kernel, 1, 3);
        extra.ref = 2;
        extra.duration_ns = 77;
        ops.push_back(extra);
      }
      ops.push_back(op);
    }
    ranks[r] = ops;
  }
  return test::job_of(std::move(ranks));
}

}  // namespace

TEST_CASE("ghosts that follow adapt to the sizes of the ranks outside") {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const std::uint32_t world = 2 + seed % 5;
    const Job job = random_job(seed + 300, world, 24);
    for (std::uint32_t count = 1; count < world; ++count) {
      CAPTURE(count);
      std::vector<std::uint32_t> ranks;
      for (std::uint32_t k = 0; k < count; ++k) ranks.push_back((seed + k) % world);
      std::sort(ranks.begin(), ranks.end());
      const bool eager = seed % 2 == 1;
      const Job other = changed(job, ranks, eager);
      ReplayOptions options;
      options.eager_bytes = eager ? 1 << 20 : 0;
      const ReplayResult want = replay(other.graph, options);
      Script script(other, ranks, seed * 7 + count);
      const ReplayResult found = emulate(job.graph, options, script, OnDivergence::follow);
      check_equal(found, want);
      CHECK(found.diverged == ranks);
      CHECK(found.warnings.size() == ranks.size());
      CHECK(found.peak_allocated_bytes == want.peak_allocated_bytes);
    }
  }
}

TEST_CASE("ghosts do not follow into another call, another number of iterations or a deadlock") {
  const Job job = random_job(5, 2, 16);
  const auto run = [&](const Job& other) {
    Script script(other, {1}, 3);
    emulate(job.graph, {}, script, OnDivergence::follow);
  };
  const auto with = [&](auto change) {
    std::vector<std::vector<Op>> ranks = job.ranks;
    change(ranks[1]);
    return ranks;
  };
  const auto first = [](std::vector<Op>& ops, OpKind kind) {
    return std::find_if(ops.begin(), ops.end(), [&](const Op& op) { return op.kind == kind; });
  };
  const Job other_call{with([&](std::vector<Op>& ops) {
                         first(ops, OpKind::all_reduce)->kind = OpKind::all_gather;
                       }),
                       job.graph};
  const std::string left = "rank 1 leaves its recorded program at op ";
  CHECK_THROWS_AS(run(other_call), MismatchError);
  try {
    run(other_call);
  } catch (const MismatchError& error) {
    CHECK(std::string(error.what()).find(left) != std::string::npos);
  }
  const Job one_less{with([&](std::vector<Op>& ops) { ops.erase(first(ops, OpKind::all_reduce)); }),
                     job.graph};
  try {
    run(one_less);
    FAIL("it went through");
  } catch (const Error& error) {  // a deadlock, or a mismatch where the next ones differ
    CHECK(std::string(error.what()).find(left) != std::string::npos);
  }
  const Job fewer{with([&](std::vector<Op>& ops) {
                    ops.erase(ops.begin() +
                              (std::find_if(ops.begin(), ops.end(),
                                            [](const Op& op) { return op.kind == OpKind::mark; }) -
                               ops.begin()));
                  }),
                  job.graph};
  CHECK_THROWS_AS(run(fewer), DivergenceError);
  const Job more{with([&](std::vector<Op>& ops) { ops.push_back(plain(OpKind::mark, 0, 0)); }),
                 job.graph};
  CHECK_THROWS_AS(run(more), DivergenceError);
  const Job stream{with([&](std::vector<Op>& ops) {
                     Op op = plain(OpKind::kernel, 9, 1);
                     op.duration_ns = 1;
                     ops.insert(ops.begin(), op);
                   }),
                   job.graph};
  CHECK_THROWS_AS(run(stream), DivergenceError);
}

TEST_CASE("iterations that only the record marks end where it says") {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    const Job job = random_job(seed + 70, 3, 24);
    std::vector<std::vector<Op>> ranks = job.ranks;
    for (const std::uint32_t r : {0U, 2U}) {
      std::erase_if(ranks[r], [](const Op& op) { return op.kind == OpKind::mark; });
    }
    const Job unmarked{std::move(ranks), job.graph};
    Script script(unmarked, {0, 2}, seed);
    check_equal(emulate(job.graph, {}, script), replay(job.graph, {}));
  }
  // One that marks some of them leaves others out.
  const Job job = random_job(5, 2, 24);
  std::vector<std::vector<Op>> ranks = job.ranks;
  const auto last = std::find_if(ranks[1].rbegin(), ranks[1].rend(),
                                 [](const Op& op) { return op.kind == OpKind::mark; });
  ranks[1].erase(std::next(last).base());
  const Job one_less{std::move(ranks), job.graph};
  Script script(one_less, {1}, 3);
  CHECK_THROWS_AS(emulate(job.graph, {}, script), DivergenceError);
}
