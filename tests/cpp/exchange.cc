#include "engine/exchange.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

#include "base/error.h"

using namespace prism;

namespace {

using Bytes = std::vector<std::byte>;

// Some are empty, some of one chunk, some of many times an inbox.
Bytes content(std::size_t from, std::size_t to, std::uint64_t number, std::size_t longest) {
  std::mt19937_64 random(from * 1'000'003 + to * 1'009 + number);
  Bytes bytes(number % 5 == 0 ? 0 : random() % (number % 7 == 0 ? longest : 200));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

ExchangeMemory again(const ExchangeMemory& memory) {
  return ExchangeMemory::open(dup(memory.fd()));
}

// Leaves `count` messages for each other rank, then takes theirs in an order of its own. What a
// program does, less whatever else happens meanwhile. True: all were as they should be.
bool talk(Exchange& exchange, std::size_t ranks, std::uint64_t count, std::size_t longest) {
  const std::size_t own = exchange.number();
  std::vector<std::pair<std::size_t, std::uint64_t>> order;
  for (std::uint64_t number = 0; number < count; ++number) {
    for (std::size_t other = 0; other < ranks; ++other) {
      if (other == own) continue;
      exchange.leave(other, {number % 3, number},
                     std::make_shared<const Bytes>(content(own, other, number, longest)));
      order.emplace_back(other, number);
    }
  }
  std::shuffle(order.begin(), order.end(), std::mt19937_64(own));
  for (const auto& [from, number] : order) {
    Exchange::Payload got;
    for (;;) {
      const std::uint32_t seen = exchange.news();
      got = exchange.take(from, {number % 3, number});
      if (got != nullptr) break;
      if (!exchange.progress()) exchange.sleep(seen, std::chrono::seconds(5));
    }
    if (*got != content(from, own, number, longest)) return false;
  }
  while (!exchange.is_flushed()) {
    const std::uint32_t seen = exchange.news();
    if (!exchange.progress()) exchange.sleep(seen, std::chrono::seconds(5));
  }
  return exchange.take((own + 1) % ranks, {0, 0}) == nullptr;  // taken once
}

}  // namespace

TEST_CASE("processes that leave much and take it in another order get all of it") {
  for (const auto& [ranks, chunks] : {std::pair<std::size_t, std::size_t>{2, 2}, {4, 8}}) {
    std::vector<std::uint32_t> world;
    for (std::uint32_t r = 0; r < ranks; ++r) world.push_back(3 * r + 1);
    const ExchangeMemory memory = ExchangeMemory::create(world, chunks);
    std::vector<pid_t> pids;
    for (std::size_t r = 0; r < ranks; ++r) {
      const pid_t pid = fork();
      if (pid == 0) {
        Exchange exchange(again(memory), r);
        _exit(talk(exchange, ranks, 60, 100'000) ? 0 : 1);
      }
      pids.push_back(pid);
    }
    for (const pid_t pid : pids) {
      int status = 0;
      CHECK(waitpid(pid, &status, 0) == pid);
      CHECK(status == 0);
    }
  }
}

TEST_CASE("several threads of a rank may leave, take and sleep") {
  constexpr std::size_t ranks = 3;
  const std::vector<std::uint32_t> world{0, 1, 2};
  const ExchangeMemory memory = ExchangeMemory::create(world, 4);
  std::atomic<std::size_t> good{0}, finished{0};
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      Exchange exchange(again(memory), r);
      std::thread helper([&] {
        while (finished != ranks) {
          const std::uint32_t seen = exchange.news();
          if (!exchange.progress()) exchange.sleep(seen, std::chrono::milliseconds(20));
        }
      });
      if (talk(exchange, ranks, 40, 30'000)) ++good;
      ++finished;
      helper.join();
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(good == ranks);
}

TEST_CASE("what is closed or abandoned keeps nobody waiting") {
  const std::vector<std::uint32_t> world{5, 9};
  const ExchangeMemory memory = ExchangeMemory::create(world, 2);
  Exchange one(again(memory), 0), two(again(memory), 1);
  CHECK(one.number_of(9) == 1);
  CHECK(!one.number_of(6));
  CHECK(!memory.waits_for(0));
  one.note_wait(1);
  CHECK(memory.waits_for(0) == 1);
  one.note_wait(std::nullopt);
  CHECK(!memory.waits_for(0));

  two.leave(0, {1, 1}, std::make_shared<const Bytes>(Bytes(100'000)));
  CHECK(!two.is_flushed());
  two.abandon();
  CHECK(two.is_over());
  CHECK(two.is_flushed());
  CHECK(!one.is_over());

  std::thread sleeper([&] {
    for (;;) {
      const std::uint32_t seen = one.news();
      if (one.is_over()) break;
      one.sleep(seen, std::chrono::seconds(30));
    }
  });
  memory.close();
  sleeper.join();
  CHECK(one.take(1, {1, 1}) == nullptr);
}

TEST_CASE("only memory of this kind is opened") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  CHECK_THROWS_AS(ExchangeMemory::open(ends[0]), Error);
  close(ends[1]);
  CHECK_THROWS_AS(ExchangeMemory::open(-1), Error);
  const std::vector<std::uint32_t> world{5, 9};
  CHECK(ExchangeMemory::create(world).ranks().size() == 2);
}
