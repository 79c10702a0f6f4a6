#include "engine/relay.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "engine/playback.h"
#include "random_job.h"

using namespace prism;
using test::Job;
using test::random_job;

namespace {

std::array<int, 2> connected() {
  std::array<int, 2> ends{};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
  return ends;
}

void nothing(std::uint32_t, std::chrono::nanoseconds) {}

// The process of a rank.
void act(const Job& job, std::uint32_t rank, const PortMemory& memory, std::size_t number) {
  Port port(memory, number);
  play_back(job.graph, rank, port);
}

// A machine without the engine, and its ranks.
struct Machine {
  const PortMemory memory;
  Relay relay;
  std::vector<std::thread> threads;

  Machine(int fd, const Job& job, const std::vector<std::uint32_t>& ranks)
      : memory(PortMemory::create(ranks.size(), 8)), relay(fd, memory) {
    for (std::size_t k = 0; k < ranks.size(); ++k) {
      threads.emplace_back([&job, this, rank = ranks[k], k] { act(job, rank, memory, k); });
    }
    threads.emplace_back([this] {
      try {
        relay.run(nothing);
      } catch (const Error&) {  // the engine's side has ended
      }
    });
  }
  ~Machine() {
    memory.close();  // a rank's last word is lost where its port is full
    relay.send_text("bye");
    for (std::thread& thread : threads) thread.join();
  }
};

}  // namespace

TEST_CASE("ranks on three machines end as in the replay") {
  for (std::uint32_t seed = 0; seed < 6; ++seed) {
    CAPTURE(seed);
    const Job job = random_job(seed, 6, 100);
    const std::vector<std::uint32_t> ranks{0, 1, 3, 4};  // 0 here; 1, 3 there; 4 elsewhere
    const PortMemory memory = PortMemory::create(ranks.size(), seed < 3 ? 4 : 64);
    const auto one = connected(), other = connected();
    Machine there(one[0], job, {1, 3}), elsewhere(other[0], job, {4});
    RemoteMachine first(one[1], memory, {1, 2}), second(other[1], memory, {3});
    std::thread here([&] { act(job, 0, memory, 0); });
    PortRanks outside(memory, ranks, [](std::uint32_t, std::chrono::nanoseconds idle) {
      if (idle > std::chrono::seconds(60)) throw std::runtime_error("idle");
    });
    for (RemoteMachine* machine : {&first, &second}) {
      for (const std::uint32_t number : machine->numbers()) {
        outside.tell_by(number, [=](std::int64_t value) { machine->answer(number, value); });
      }
    }
    const ReplayResult found = emulate(job.graph, {}, outside);
    here.join();
    const ReplayResult want = replay(job.graph, {});
    CHECK(found.iteration_end_ns == want.iteration_end_ns);
    CHECK(found.splits == want.splits);
    CHECK(!first.lost());
  }
}

TEST_CASE("texts go both ways, and a machine that is gone is known to be") {
  const Job job = random_job(1, 2, 4);
  const PortMemory memory = PortMemory::create(1);
  const auto ends = connected();
  {
    RemoteMachine engine(ends[1], memory, {0});
    {
      Machine machine(ends[0], job, {1});
      CHECK(engine.send_text("hello"));
      std::optional<std::string> text;
      while (!(text = machine.relay.take_text())) std::this_thread::yield();
      CHECK(*text == "hello");
    }
    while (!engine.lost()) std::this_thread::yield();
    CHECK(engine.take_text() == "bye");
    CHECK(engine.take_text() == std::nullopt);
  }
}

TEST_CASE("a machine without ranks that go on hears that the engine's is gone") {
  const Job job = random_job(1, 2, 40);
  const PortMemory memory = PortMemory::create(1);
  const auto ends = connected();
  Relay relay(ends[0], memory);
  {
    const PortMemory engine_memory = PortMemory::create(1);
    const RemoteMachine engine(ends[1], engine_memory, {0});
  }
  CHECK_THROWS_AS(relay.run(nothing), Error);
}

TEST_CASE("what is no frame, or for no port, ends the connection") {
  const PortMemory memory = PortMemory::create(1);
  const std::vector<std::vector<std::uint64_t>> wrong{{0xffff'ffff'ffff'ffff, 16},
                                                      {1, ~std::uint64_t{0}},
                                                      {1, 17},
                                                      {(7ULL << 32) | 1, sizeof(Post)}};
  for (const auto& head : wrong) {
    const auto ends = connected();
    RemoteMachine engine(ends[1], memory, {0});
    Connection peer(ends[0]);
    CHECK(write(ends[0], head.data(), 16) == 16);
    const std::vector<std::byte> rest(64);
    CHECK(write(ends[0], rest.data(), rest.size()) == 64);
    while (!engine.lost()) std::this_thread::yield();
  }
  const auto ends = connected();
  close(ends[1]);
  Connection peer(ends[0]);
  CHECK(!peer.send_text("nobody hears"));
  int pipes[2];
  REQUIRE(pipe(pipes) == 0);
  CHECK_THROWS_AS(Connection{pipes[0]}, Error);
  close(pipes[0]);
  close(pipes[1]);
}
