// A rank process of an emulation: its program, its device's thread, and the engine beside it.
#include <doctest/doctest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "engine/exchange.h"
#include "engine/port.h"
#include "vgpu_rank.h"

using namespace prism;
using namespace prism::vgpu;
using namespace prism::vgpu::testing;

namespace {

// A word from one process to the other.
class Signal {
 public:
  Signal() { REQUIRE(pipe(ends_.data()) == 0); }
  void give() const { CHECK(write(ends_[1], "x", 1) == 1); }
  bool comes() const {
    pollfd waits{.fd = ends_[0], .events = POLLIN, .revents = 0};
    char word = 0;
    return poll(&waits, 1, 20'000) == 1 && read(ends_[0], &word, 1) == 1;
  }

 private:
  std::array<int, 2> ends_{};
};

// The process of the first of three ranks that run; `program` ends it with _exit.
class Rank {
 public:
  explicit Rank(const std::function<void(Session&, Runtime&)>& program)
      : ports_(PortMemory::create(1)),
        exchange(ExchangeMemory::create(std::array<std::uint32_t, 3>{1, 2, 3})),
        outside(ports_, {1}, [](std::uint32_t, auto) {}) {
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ != 0) return;
    Session& session = Session::get();
    session.attach(PortMemory::open(dup(ports_.fd())), 0);
    session.attach_exchange(ExchangeMemory::open(dup(exchange.fd())), 0);
    session.start(rank_options());
    program(session, Runtime::get());
    _exit(9);
  }
  ~Rank() {
    if (pid_ <= 0) return;  // a fork that failed, or has ended: as a target, -1 is every process
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  // Until the program asks the engine.
  void asks() {
    std::vector<Post> posts;
    while (posts.empty() || posts.back().ask == Ask::nothing) {
      outside.wait();
      outside.take(0, posts);
    }
  }
  // Its exit status; nullopt where it does not end.
  std::optional<int> end() {
    for (int k = 0; k < 2000; ++k) {
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        return status;
      }
      usleep(10'000);
    }
    return std::nullopt;
  }

 private:
  PortMemory ports_;
  pid_t pid_ = -1;

 public:
  ExchangeMemory exchange;
  PortRanks outside;
};

// Behind which the device's thread looks at all that is queued.
void stir(Session& session) {
  session.enqueue_step(nullptr, [] { return Lacks(); }, {});
}

}  // namespace

TEST_CASE("a move calls in while the program waits for the engine") {
  const Signal has_called;
  Rank rank([&](Session& session, Runtime& gpu) {
    session.kernel(nullptr, five, {});
    session.enqueue(nullptr, [&] {
      usleep(100'000);
      gpu.synchronize_stream(nullptr);
      gpu.query_stream(nullptr);
      gpu.memory(0);
      session.kernel(nullptr, five, {});  // not the program's
      has_called.give();
    });
    stir(session);
    gpu.synchronize_device();
    _exit(finish().size() == 2 ? 0 : 1);
  });
  rank.asks();
  CHECK(has_called.comes());
  rank.outside.answer(0, 5000);
  CHECK(rank.end() == 0);
}

TEST_CASE("a move that fails ends a rank whose program waits for the engine") {
  const Signal program_asks;
  Rank rank([&](Session& session, Runtime& gpu) {
    session.enqueue(nullptr, [&] {
      if (!program_asks.comes()) _exit(2);
      session.detach();
      session.stop();
      session.finish({}, "{}");
      _exit(0);
    });
    stir(session);
    gpu.synchronize_device();
    gpu.synchronize_device();
    _exit(1);  // with bytes that are not there
  });
  rank.asks();
  program_asks.give();
  CHECK(rank.end() == 0);
}

TEST_CASE("no move begins when the program has failed") {
  Rank rank([&](Session& session, Runtime&) {
    session.enqueue_step(nullptr, [&] { return session.exchange()->is_over() ? Lacks() : 1; }, {});
    session.enqueue(nullptr, [] { _exit(1); });
    session.detach();
    session.stop();
    session.finish({}, "{}");
    usleep(100'000);
    _exit(0);
  });
  CHECK(rank.end() == 0);
}

TEST_CASE("a callback does not wait for what comes behind itself") {
  Rank rank([&](Session& session, Runtime& gpu) {
    constexpr std::uint32_t non_blocking = 1;
    void* const a = gpu.create_stream(non_blocking, 0, 0);
    void* const b = gpu.create_stream(non_blocking, 0, 0);
    void* const event = gpu.create_event(false);
    bool before = false, beside = false, behind = false;
    session.enqueue(a, [&] { before = true; });
    gpu.host_callback(a, [&] {
      gpu.synchronize_stream(a);
      session.drain_all();  // of the other stream, what does not come behind
      if (!before || !beside || behind) _exit(1);
    });
    session.enqueue(b, [&] { beside = true; });
    gpu.record(event, a);
    gpu.wait(b, event);
    session.enqueue(b, [&] { behind = true; });
    session.drain_all();
    _exit(behind ? 0 : 2);
  });
  CHECK(rank.end() == 0);
}

TEST_CASE("a block that no work uses is handed out beside work that waits for others") {
  Rank rank([&](Session& session, Runtime& gpu) {
    void* const block = gpu.allocate(4096, 0);
    // As of a collective of no elements: known to touch nothing.
    session.enqueue_step(nullptr, [] { return Lacks(1); }, {});
    session.enqueue(nullptr, [] {}, {});
    gpu.block_allocated(block, 4096);
    _exit(0);
  });
  CHECK(rank.end() == 0);
}

TEST_CASE("whom the program waits for is told for the whole wait, by the stream it waits on") {
  const Signal seen;
  Rank rank([&](Session& session, Runtime& gpu) {
    constexpr std::uint32_t non_blocking = 1;
    void* const a = gpu.create_stream(non_blocking, 0, 0);
    void* const b = gpu.create_stream(non_blocking, 0, 0);
    void* const c = gpu.create_stream(non_blocking, 0, 0);
    void* const event = gpu.create_event(false);
    std::atomic<bool> comes{false};
    session.enqueue_step(a, [&] { return comes ? Lacks() : Lacks(2); }, {});
    session.enqueue_step(b, [] { return Lacks(1); }, {});
    gpu.record(event, a);
    gpu.wait(c, event);  // what stands in c waits for the bytes of a
    session.enqueue(c, [] {}, {});
    std::thread others([&] {
      seen.comes();
      comes = true;
      session.exchange()->stir();
    });
    session.drain(c);
    others.join();
    _exit(session.exchange() != nullptr ? 0 : 1);
  });
  while (!rank.exchange.waits_for(0)) usleep(1000);
  for (int k = 0; k < 400; ++k) {
    REQUIRE(rank.exchange.waits_for(0) == 2);
    usleep(1000);
  }
  seen.give();
  CHECK(rank.end() == 0);
  CHECK(!rank.exchange.waits_for(0));
}

TEST_CASE("a process that the program starts has no device to wait for") {
  Rank rank([&](Session& session, Runtime& gpu) {
    session.enqueue(nullptr, [] { pause(); });
    stir(session);
    const pid_t child = fork();
    if (child == 0) {
      session.drain_all();
      gpu.query_stream(nullptr);
      session.stop();
      _exit(0);
    }
    int status = 0;
    _exit(waitpid(child, &status, 0) == child && status == 0 ? 0 : 1);
  });
  CHECK(rank.end() == 0);
  std::vector<Post> posts;
  rank.outside.take(0, posts);
  CHECK(posts.empty());
}
