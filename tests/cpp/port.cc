#include "engine/port.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/playback.h"
#include "random_job.h"

using namespace prism;
using test::Job;
using test::random_job;

namespace {

struct Stopped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The processes of ranks that post what they recorded; `ops`: and end without a word after as many.
class Processes {
 public:
  Processes(const Job& job, const std::vector<std::uint32_t>& ranks, const PortMemory& memory,
            std::size_t ops = SIZE_MAX)
      : memory_(memory) {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const pid_t pid = fork();
      if (pid == 0) {
        Port port(PortMemory::open(dup(memory.fd())), i);
        std::size_t done = 0;
        for (const Op& op : job.ranks[ranks[i]]) {
          if (done++ == ops) _exit(0);
          const Post post = test::post_of(job, ranks[i], op);
          if (post.ask == Ask::nothing) {
            port.post(post);
          } else if (port.ask(post) < 0) {
            _exit(1);
          }
        }
        Post end;
        end.ended = true;
        port.post(end);
        _exit(0);
      }
      pids_.push_back(pid);
    }
  }
  ~Processes() {
    memory_.close();  // whatever the test found, none of them waits for an answer
    for (const pid_t pid : pids_) {
      int status = 0;
      CHECK(waitpid(pid, &status, 0) == pid);
      CHECK(status == 0);
    }
  }
  // Whether all have ended.
  bool are_gone() const {
    return std::all_of(pids_.begin(), pids_.end(), [](pid_t pid) {
      siginfo_t ended{};
      return waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
             ended.si_pid == pid;
    });
  }

 private:
  PortMemory memory_;
  std::vector<pid_t> pids_;
};

}  // namespace

TEST_CASE("processes that post through shared memory end as in the replay") {
  for (std::uint32_t seed = 0; seed < 6; ++seed) {
    CAPTURE(seed);
    const std::uint32_t world = 3 + seed % 3;
    const Job job = random_job(seed, world, 200);
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t r = seed % 2; r < world; r += 2) ranks.push_back(r);
    // A small port is full all the time.
    PortMemory memory = PortMemory::create(ranks.size(), seed < 3 ? 4 : 1024);
    const Processes processes(job, ranks, memory);
    PortRanks outside(std::move(memory), ranks, [](std::uint32_t, std::chrono::nanoseconds idle) {
      if (idle > std::chrono::seconds(60)) throw Stopped("idle");
    });
    const ReplayResult want = replay(job.graph, {});
    const ReplayResult found = emulate(job.graph, {}, outside);
    CHECK(found.iteration_end_ns == want.iteration_end_ns);
    CHECK(found.splits == want.splits);
    CHECK(outside.messages() > ranks.size());  // posts, and the answers
  }
}

TEST_CASE("a rank that is played back ends as in the replay, and on the wall clock not sooner") {
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    CAPTURE(seed);
    const bool timed = seed % 2 == 1;
    const Job job = random_job(seed, 4, 60);
    const std::vector<std::uint32_t> ranks{1, 2};
    PortMemory memory = PortMemory::create(2, 64, timed);
    CHECK(memory.is_timed() == timed);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] {
        Port port(memory, i);
        play_back(job.graph, ranks[i], port);
      });
    }
    PortRanks outside(memory, ranks, [](std::uint32_t, auto) {});
    const ReplayResult found = emulate(job.graph, {}, outside);
    for (std::thread& thread : threads) thread.join();
    const ReplayResult want = replay(job.graph, {});
    CHECK(found.late_ns.size() == (timed ? 2 : 0));
    for (std::size_t k = 0; k < want.iteration_end_ns.size(); ++k) {
      CHECK(found.iteration_end_ns[k] >= want.iteration_end_ns[k]);
    }
    if (!timed) CHECK(found.iteration_end_ns == want.iteration_end_ns);
  }
}

TEST_CASE("a process that ends without a word ends the emulation") {
  const Job job = random_job(3, 4, 50);
  PortMemory memory = PortMemory::create(1);
  const std::vector<std::uint32_t> ranks{2};
  const Processes processes(job, ranks, memory, 40);
  PortRanks outside(std::move(memory), ranks, [&](std::uint32_t, auto) {
    if (processes.are_gone()) throw Stopped("rank 2 is gone");
  });
  CHECK_THROWS_WITH_AS(emulate(job.graph, {}, outside), "rank 2 is gone", Stopped);
}

TEST_CASE("a rank that waits for an answer is not the silent one") {
  const PortMemory memory = PortMemory::create(2);
  std::uint32_t silent = 0;
  PortRanks outside(memory, {4, 7}, [&](std::uint32_t rank, auto) { silent = rank; });
  std::thread polls([&] {
    Port port(memory, 0);
    Post query;
    query.op.kind = OpKind::query;
    query.ask = Ask::event_done;
    CHECK(port.ask(query) == 1);
  });
  std::vector<Post> posts;
  while (posts.empty()) {
    outside.wait();
    outside.take(0, posts);
  }
  outside.wait_until(outside.now() + 300'000'000);
  CHECK(silent == 7);
  outside.answer(0, 1);
  polls.join();
}

TEST_CASE("a rank that has left is told at once, and posts nothing") {
  const PortMemory memory = PortMemory::create(1);
  PortRanks outside(memory, {0}, [](std::uint32_t, auto) {});
  Port port(memory, 0);
  Post question;
  question.op.kind = OpKind::device_sync;
  question.ask = Ask::host_time;
  std::thread waits([&] { CHECK(port.ask(question) == 0); });
  std::vector<Post> posts;
  while (posts.empty()) {
    outside.wait();
    outside.take(0, posts);
  }
  port.abandon();
  waits.join();
  CHECK(port.ask(question) == 0);
  outside.take(0, posts);
  CHECK(posts.size() == 1);
}

TEST_CASE("only memory of this kind is opened") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  CHECK_THROWS_AS(PortMemory::open(ends[0]), Error);
  close(ends[1]);
  CHECK_THROWS_AS(PortMemory::open(-1), Error);
  CHECK(PortMemory::create(3, 8).ranks() == 3);
}
