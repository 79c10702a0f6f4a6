// The wall clock, against a wall of the test's own.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "engine/outside.h"
#include "random_job.h"

using namespace prism;
using test::Job;
using test::plain;
using test::random_job;

namespace {

// A fake wall: processes that take `between` ns from each post to the next, and as long from an
// answer on. Time passes only in waits; each wait comes to the next thing that happens.
class OnTheWall : public TimedRanks {
 public:
  struct Process {
    std::vector<Post> posts;
    std::int64_t at = 0;  // when the next one is posted
    std::int64_t between = 0;
    std::int64_t answer_due = INT64_MAX;
    std::size_t next = 0;
    bool asks = false;
  };

  OnTheWall(std::vector<std::uint32_t> ranks, std::vector<Process> processes)
      : ranks_(std::move(ranks)), of_(std::move(processes)) {}

  std::span<const std::uint32_t> ranks() const noexcept override { return ranks_; }
  std::int64_t now() noexcept override { return now_; }
  void take(std::size_t i, std::vector<Post>& posts) override {
    Process& p = of_[i];
    while (!p.asks && p.next < p.posts.size() && p.at <= now_) {
      Post post = p.posts[p.next++];
      post.posted_ns = p.at;
      p.asks = post.ask != Ask::nothing;
      p.at += p.between;
      posts.push_back(post);
    }
  }
  void wait() override { wait_until(INT64_MAX); }
  void wait_until(std::int64_t until) override {
    std::int64_t next = until;
    for (Process& p : of_) {
      if (!p.asks && p.next < p.posts.size()) next = std::min(next, std::max(p.at, now_ + 1));
      if (p.answer_due != INT64_MAX) next = std::min(next, p.answer_due);
    }
    REQUIRE(next != INT64_MAX);
    now_ = std::max(now_, next);
    for (Process& p : of_) {
      if (p.answer_due > now_) continue;
      p.at = p.answer_due + p.between;
      p.answer_due = INT64_MAX;
      p.asks = false;
    }
  }
  void answer(std::size_t i, std::int64_t value) override { answer_at(i, value, now_); }
  void answer_at(std::size_t i, std::int64_t value, std::int64_t due) override {
    REQUIRE(of_[i].asks);
    REQUIRE(of_[i].answer_due == INT64_MAX);
    of_[i].answer_due = std::max(due, now_);
    told.push_back({i, value, due, now_ <= due});
  }

  struct Told {
    std::size_t i = 0;
    std::int64_t value = 0, due = 0;
    bool in_time = false;
    friend bool operator==(const Told&, const Told&) = default;
  };
  std::vector<Told> told;

 private:
  std::vector<std::uint32_t> ranks_;
  std::vector<Process> of_;
  std::int64_t now_ = 0;
};

void check_equal(const ReplayResult& a, const ReplayResult& b) {
  CHECK(a.iteration_time_ns == b.iteration_time_ns);
  CHECK(a.iteration_end_ns == b.iteration_end_ns);
  CHECK(a.splits == b.splits);
}

constexpr std::int64_t ms = 1'000'000;

// Pairs of ranks, two iterations: a kernel of 10 ms and an all-reduce of 5 ms, which the host takes
// 1 ms each to launch, a synchronise, and 1 ms later the mark of an iteration.
Job two_and_two(std::uint32_t world = 4) {
  GraphBuilder builder(world);
  builder.kernel("k0", {});
  std::vector<std::vector<Op>> ranks(world);
  std::vector<std::uint32_t> pairs;
  for (std::uint32_t first = 0; first < world; first += 2) {
    pairs.push_back(builder.communicator(test::numbered("pair", first),
                                         std::vector<std::uint32_t>{first, first + 1}));
  }
  for (std::uint32_t r = 0; r < world; ++r) {
    for (int iteration = 0; iteration < 2; ++iteration) {
      Op kernel = plain(OpKind::kernel, 0, 1 * ms);
      kernel.duration_ns = 10 * ms;
      Op reduce = plain(OpKind::all_reduce, 0, 1 * ms);
      reduce.duration_ns = 5 * ms;
      reduce.bytes = 256;
      reduce.dtype = DataType::float32;
      ranks[r].insert(ranks[r].end(), {kernel, reduce, plain(OpKind::stream_sync, 0, 0),
                                       plain(OpKind::mark, 0, 1 * ms)});
    }
    const std::vector<Binding> binding{{pairs[r / 2], r % 2}};
    builder.set_rank(r, ranks[r], binding);
  }
  return {ranks, builder.finish("{}")};
}

std::vector<Post> posts_of(const Job& job, std::uint32_t rank) {
  std::vector<Post> posts;
  for (const Op& op : job.ranks[rank]) posts.push_back(test::post_of(job, rank, op));
  posts.emplace_back().ended = true;
  return posts;
}

std::vector<std::int64_t> ends_of(const ReplayResult& result, std::uint32_t rank) {
  const auto n = std::size_t{result.iterations};
  const auto first = result.iteration_end_ns.begin() + static_cast<std::ptrdiff_t>(rank * n);
  return {first, first + static_cast<std::ptrdiff_t>(n)};
}

using Ends = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("on the wall clock processes as fast as their hosts end as in the replay") {
  const Job job = two_and_two();
  const ReplayResult want = replay(job.graph, {});
  CHECK(ends_of(want, 0) == Ends{17 * ms, 34 * ms});
  for (const std::int64_t start : {std::int64_t{0}, 7 * ms, 400 * ms}) {
    OnTheWall wall({0, 1}, {{posts_of(job, 0), 0, ms / 4}, {posts_of(job, 1), start, ms / 4}});
    const ReplayResult found = emulate(job.graph, {}, wall);
    check_equal(found, want);
    CHECK(found.late_ns == Ends{0, 0});
    REQUIRE(wall.told.size() == 4);
    CHECK(wall.told[2].value == 33 * ms);
    CHECK(wall.told[2].due == wall.told[3].due);
    CHECK(wall.told[2].in_time);
  }
}

TEST_CASE("a late process delays those that depend on it, and nobody else") {
  const Job job = two_and_two();
  // 3 ms between posts. The clock starts at the mark of the first iteration, at 17 ms of the job.
  // From there, with what the host clock says: kernel at 20 (18), all-reduce at 23 (21) behind the
  // kernel that ends at 30, synchronise at 26 (23), told at 35, mark at 38 (36).
  OnTheWall wall({0}, {{posts_of(job, 0), 0, 3 * ms}});
  const ReplayResult found = emulate(job.graph, {}, wall);
  CHECK(ends_of(found, 0) == Ends{17 * ms, 38 * ms});
  CHECK(ends_of(found, 1) == Ends{17 * ms, 36 * ms});
  CHECK(ends_of(found, 2) == Ends{17 * ms, 34 * ms});
  CHECK(ends_of(found, 3) == Ends{17 * ms, 34 * ms});
  CHECK(found.late_ns == Ends{(2 + 2 + 3 + 2) * ms});
  REQUIRE(wall.told.size() == 2);
  CHECK(wall.told[1].value == 35 * ms);
  // The mark came 3 ms after the first answer.
  CHECK(wall.told[1].due - wall.told[0].due == 3 * ms + (35 - 17) * ms);
}

TEST_CASE("a launch later than the device delays its partner by what the device waits") {
  const Job job = two_and_two();
  // 12 ms between posts: kernel from 29 to 39, all-reduce from 41 to 46, synchronise at 53, mark at
  // 65. Another pair is not concerned, though one of it runs too.
  OnTheWall wall({0, 2}, {{posts_of(job, 0), 0, 12 * ms}, {posts_of(job, 2), 0, 0}});
  const ReplayResult found = emulate(job.graph, {}, wall);
  CHECK(ends_of(found, 0) == Ends{17 * ms, 65 * ms});
  CHECK(ends_of(found, 1) == Ends{17 * ms, 47 * ms});
  CHECK(ends_of(found, 2) == Ends{17 * ms, 34 * ms});
  CHECK(ends_of(found, 3) == Ends{17 * ms, 34 * ms});
  CHECK(found.late_ns == Ends{(11 + 11 + 12 + 11) * ms, 0});
}

TEST_CASE("a query on the wall clock is answered at its host clock") {
  Job job = two_and_two(2);
  std::vector<Post> posts = posts_of(job, 0);
  // Before the second synchronise the rank asks twice whether the stream is done.
  Post query;
  query.op = plain(OpKind::query, 0, static_cast<std::uint32_t>(2 * ms));
  query.ask = Ask::stream_done;
  posts.insert(posts.begin() + 6, {query, query});
  // Its partner runs too, and comes to its second all-reduce at 47 ms: what the rank asks about
  // cannot be known when it asks, at 21 and 23 ms.
  OnTheWall wall({0, 1}, {{posts, 0, ms / 2}, {posts_of(job, 1), 0, 15 * ms}});
  const ReplayResult found = emulate(job.graph, {}, wall);
  CHECK(ends_of(found, 0) == Ends{17 * ms, 53 * ms});
  CHECK(ends_of(found, 1) == Ends{17 * ms, 77 * ms});
  std::vector<OnTheWall::Told> told;
  std::copy_if(wall.told.begin(), wall.told.end(), std::back_inserter(told),
               [](const auto& t) { return t.i == 0; });
  REQUIRE(told.size() == 4);
  const std::int64_t origin = told[3].due - 52 * ms;
  CHECK(told[1] == OnTheWall::Told{0, 0, origin + 21 * ms, true});
  CHECK(told[2] == OnTheWall::Told{0, 0, origin + 23 * ms, true});
  CHECK(told[3] == OnTheWall::Told{0, 52 * ms, origin + 52 * ms, true});
}

TEST_CASE("random jobs on the wall clock take no less time, and as long where nobody is late") {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const std::uint32_t world = 2 + seed % 5;
    const Job job = random_job(seed, world, 24);
    const ReplayResult want = replay(job.graph, {});
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t r = seed % 2; r < world; r += 1 + seed % 3) ranks.push_back(r);
    for (const std::int64_t between : {0, 40, 400}) {
      CAPTURE(between);
      std::vector<OnTheWall::Process> processes;
      for (const std::uint32_t r : ranks) processes.push_back({posts_of(job, r), 10 * r, between});
      OnTheWall wall(ranks, std::move(processes));
      const ReplayResult found = emulate(job.graph, {}, wall);
      // Ghosts whose hosts must run ahead are not let to at once.
      if (between == 0 && ranks.size() == world) check_equal(found, want);
      std::int64_t late = 0;
      for (const std::int64_t ns : found.late_ns) late += ns;
      if (between == 400) CHECK(late > 0);
      for (std::size_t k = 0; k < want.iteration_end_ns.size(); ++k) {
        CHECK(found.iteration_end_ns[k] >= want.iteration_end_ns[k]);
        CHECK(found.iteration_end_ns[k] <= want.iteration_end_ns[k] + late);
      }
    }
  }
}
