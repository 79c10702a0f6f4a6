// Rank processes that communicate through NCCL's names, against what each of them should hold.
#include "intercept/joint.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "intercept/nccl.h"
#include "vgpu/device/runtime.h"
#include "vgpu/device/session.h"

using namespace prism;
namespace nccl = prism::abi::nccl;
using intercept::Handle;
using vgpu::Runtime;
using vgpu::Session;

namespace {

constexpr int int32 = 2, float32 = 7;
constexpr int sum = 0, prod = 1, max = 2, avg = 4;
using Ints = std::vector<std::int32_t>;

// What position p of a communicator would give.
Ints data(std::uint32_t position, std::size_t count, std::int32_t salt = 0) {
  Ints values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<std::int32_t>(100 * (position + 1) + i) + salt;
  }
  return values;
}

struct Job {
  std::uint32_t world;
  std::vector<std::uint32_t> sandbox;
  // Whose data a position has: a ghost's are those of the first rank that runs.
  std::uint32_t holder(std::uint32_t position) const {
    const bool runs = std::find(sandbox.begin(), sandbox.end(), position) != sandbox.end();
    return runs ? position : sandbox.front();
  }
};

// One rank process, from its start on.
class Rank {
 public:
  Rank(const Job& of, const ExchangeMemory& memory, std::size_t number) : job(of) {
    Session::get().attach_exchange(ExchangeMemory::open(dup(memory.fd())), number);
    vgpu::SessionOptions options = Session::get().options();
    options.rank = job.sandbox[number];
    options.world_size = job.world;
    options.cluster.gpus_per_node = 8;
    Session::get().start(options);
    own = options.rank;
    world = communicator('w');
  }
  Handle communicator(char id) const {
    nccl::UniqueId unique{};
    unique.internal[0] = id;
    Handle made = nullptr;
    expect(ncclCommInitRank(&made, static_cast<int>(job.world), unique, static_cast<int>(own)) ==
           nccl::success);
    return made;
  }
  template <class T>
  T* device(const std::vector<T>& values) {
    T* address = room<T>(values.size());
    Runtime::get().copy(nullptr, {.to = address, .from = values.data(), .width = bytes_of(values)},
                        true);
    return address;
  }
  template <class T = std::int32_t>
  T* room(std::size_t count) {
    auto* address = static_cast<T*>(Runtime::get().allocate(
        static_cast<std::int64_t>(std::max<std::size_t>(count, 1) * sizeof(T)), 0));
    expect(address != nullptr);
    return address;
  }
  template <class T>
  void holds(const T* address, const std::vector<T>& want, const char* what,
             void* stream = nullptr) {
    std::vector<T> found(want.size());
    Session::get().drain(stream);
    Runtime::get().copy(nullptr, {.to = found.data(), .from = address, .width = bytes_of(found)},
                        true);
    if (found == want) return;
    std::string text = std::string("rank ") + std::to_string(own) + ", " + what + ": found";
    for (std::size_t i = 0; i < std::min<std::size_t>(found.size(), 12); ++i) {
      text += ' ' + std::to_string(found[i]) + '/' + std::to_string(want[i]);
    }
    text += '\n';
    [[maybe_unused]] const auto written = write(2, text.data(), text.size());
    good = false;
  }
  void expect(bool is) const {
    if (!is) good = false;
  }

  const Job& job;
  std::uint32_t own = 0;
  Handle world = nullptr;
  mutable bool good = true;

 private:
  template <class T>
  static std::int64_t bytes_of(const std::vector<T>& values) {
    return static_cast<std::int64_t>(values.size() * sizeof(T));
  }
};

using Program = std::function<void(Rank&)>;

std::vector<pid_t> start(const Job& job, const ExchangeMemory& memory, const Program& program) {
  std::vector<pid_t> pids;
  for (std::size_t number = 0; number < job.sandbox.size(); ++number) {
    const pid_t pid = fork();
    if (pid == 0) {
      Rank rank(job, memory, number);
      program(rank);
      Session::get().stop();
      _exit(rank.good ? 0 : 1);
    }
    pids.push_back(pid);
  }
  return pids;
}

int end_of(pid_t pid) {
  int status = 0;
  CHECK(waitpid(pid, &status, 0) == pid);
  return status;
}

void run(const Job& job, const Program& program, std::size_t chunks = 16) {
  const ExchangeMemory memory = ExchangeMemory::create(job.sandbox, chunks);
  for (const pid_t pid : start(job, memory, program)) CHECK(end_of(pid) == 0);
}

const Job jobs[] = {{2, {0, 1}}, {5, {0, 1, 2, 3, 4}}, {5, {1, 3}}, {6, {0, 2, 5}}};

}  // namespace

TEST_CASE("reductions") {
  for (const Job& job : jobs) {
    run(job, [](Rank& rank) {
      constexpr std::size_t n = 40;
      const auto count = std::size_t{rank.job.world} * n;
      Ints total(count), most(count), product(count, 1), mean(count);
      for (std::uint32_t p = 0; p < rank.job.world; ++p) {
        const Ints part = data(rank.job.holder(p), count);
        for (std::size_t i = 0; i < count; ++i) {
          total[i] += part[i];
          most[i] = std::max(most[i], part[i]);
          product[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(product[i]) *
                                                 static_cast<std::uint32_t>(part[i]));
        }
      }
      for (std::size_t i = 0; i < count; ++i) {
        mean[i] = total[i] / static_cast<std::int32_t>(rank.job.world);
      }
      const struct {
        int op;
        Ints* want;
      } cases[] = {{sum, &total}, {max, &most}, {prod, &product}, {avg, &mean}};
      for (const auto& [op, want] : cases) {
        auto* in = rank.device(data(rank.own, count));
        auto* out = rank.room(count);
        rank.expect(ncclAllReduce(in, out, count, int32, op, rank.world, nullptr) == 0);
        rank.holds(out, *want, "all_reduce");
        rank.holds(in, data(rank.own, count), "input of all_reduce");
        rank.expect(ncclAllReduce(in, in, count, int32, op, rank.world, nullptr) == 0);
        rank.holds(in, *want, "all_reduce in place");
      }
      auto* in = rank.device(data(rank.own, count));
      auto* own_part = rank.room(n);
      rank.expect(ncclReduceScatter(in, own_part, n, int32, sum, rank.world, nullptr) == 0);
      const auto begin = total.begin() + static_cast<std::ptrdiff_t>(rank.own * n);
      rank.holds(own_part, Ints(begin, begin + n), "reduce_scatter");
      for (std::uint32_t root = 0; root < rank.job.world; ++root) {
        auto* out = rank.device(Ints(count, 7));
        rank.expect(ncclReduce(in, out, count, int32, sum, static_cast<int>(root), rank.world,
                               nullptr) == 0);
        rank.holds(out, root == rank.own ? total : Ints(count, 7), "reduce");
      }
      // premul_sum: each rank its own scalar, which lies on the device.
      const float factor = static_cast<float>(rank.own + 2);
      int op = 0;
      auto* scalar = rank.device(std::vector<float>{factor});
      rank.expect(ncclRedOpCreatePreMulSum(&op, scalar, float32, 0, rank.world) == 0);
      auto* x = rank.device(std::vector<float>{1, 2, static_cast<float>(rank.own)});
      rank.expect(ncclAllReduce(x, x, 3, float32, op, rank.world, nullptr) == 0);
      std::vector<float> want(3);
      for (std::uint32_t p = 0; p < rank.job.world; ++p) {
        const auto holder = static_cast<float>(rank.job.holder(p));
        want[0] += holder + 2;
        want[1] += 2 * (holder + 2);
        want[2] += holder * (holder + 2);
      }
      rank.holds(x, want, "premul_sum");
    });
  }
}

TEST_CASE("gathers, scatters, broadcasts and all-to-alls") {
  for (const Job& job : jobs) {
    run(job, [](Rank& rank) {
      constexpr std::size_t n = 30;
      const std::uint32_t world = rank.job.world;
      const auto count = std::size_t{world} * n;
      Ints all, exchanged;
      for (std::uint32_t p = 0; p < world; ++p) {
        const std::uint32_t holder = rank.job.holder(p);
        const Ints part = data(holder, n);
        all.insert(all.end(), part.begin(), part.end());
        // A ghost gives back what it was sent.
        const Ints sent = holder == p ? data(p, count) : data(rank.own, count);
        const auto from =
            sent.begin() + static_cast<std::ptrdiff_t>((holder == p ? rank.own : p) * n);
        exchanged.insert(exchanged.end(), from, from + n);
      }
      auto* own = rank.device(data(rank.own, n));
      auto* out = rank.device(Ints(count, 9));
      rank.expect(ncclAllGather(own, out, n, int32, rank.world, nullptr) == 0);
      rank.holds(out, all, "all_gather");
      auto* place = out + rank.own * n;
      rank.expect(ncclAllGather(place, out, n, int32, rank.world, nullptr) == 0);
      rank.holds(out, all, "all_gather in place");

      auto* many = rank.device(data(rank.own, count));
      rank.expect(ncclAlltoAll(many, out, n, int32, rank.world, nullptr) == 0);
      rank.holds(out, exchanged, "all_to_all");

      for (std::uint32_t root = 0; root < world; ++root) {
        const int r = static_cast<int>(root);
        const std::uint32_t holder = rank.job.holder(root);
        auto* to = rank.device(Ints(count, 9));
        rank.expect(ncclGather(own, to, n, int32, r, rank.world, nullptr) == 0);
        rank.holds(to, root == rank.own ? all : Ints(count, 9), "gather");

        auto* same = rank.device(data(rank.own, n));
        rank.expect(ncclBroadcast(same, same, n, int32, r, rank.world, nullptr) == 0);
        rank.holds(same, data(holder, n), "broadcast");

        auto* part = rank.device(Ints(n, 9));
        rank.expect(ncclScatter(many, part, n, int32, r, rank.world, nullptr) == 0);
        const Ints given = data(root, count);
        const auto from = given.begin() + static_cast<std::ptrdiff_t>(rank.own * n);
        rank.holds(part, holder == root ? Ints(from, from + n) : Ints(n, 0), "scatter");
      }
      // Nothing at all, and again something.
      rank.expect(ncclAllReduce(own, own, 0, int32, sum, rank.world, nullptr) == 0);
      rank.expect(ncclAllGather(own, out, n, int32, rank.world, nullptr) == 0);
      rank.holds(out, all, "all_gather after nothing");
    });
  }
}

TEST_CASE("messages: rings, both ways at once, several to one, uneven all-to-alls") {
  for (const Job& job : jobs) {
    run(job, [](Rank& rank) {
      const auto& ranks = rank.job.sandbox;
      const auto at =
          static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), rank.own) - ranks.begin());
      const std::uint32_t next = ranks[(at + 1) % ranks.size()];
      const std::uint32_t last = ranks[(at + ranks.size() - 1) % ranks.size()];
      const auto send = [&](std::int32_t* from, std::size_t count, std::uint32_t to) {
        rank.expect(ncclSend(from, count, int32, static_cast<int>(to), rank.world, nullptr) == 0);
      };
      const auto receive = [&](std::int32_t* to, std::size_t count, std::uint32_t from) {
        rank.expect(ncclRecv(to, count, int32, static_cast<int>(from), rank.world, nullptr) == 0);
      };
      // Not grouped: every rank sends first.
      auto* token = rank.device(data(rank.own, 50));
      auto* got = rank.room(50);
      for (std::size_t round = 0; round < ranks.size(); ++round) {
        send(token, 50, next);
        receive(got, 50, last);
        std::swap(token, got);
      }
      rank.holds(token, data(rank.own, 50), "a ring, all the way round");
      // Grouped, two to the same rank, which come in order.
      auto* a = rank.device(data(rank.own, 20, 1000));
      auto* b = rank.device(data(rank.own, 20, 2000));
      auto* c = rank.room(20);
      auto* d = rank.room(20);
      ncclGroupStart();
      receive(c, 20, last);
      receive(d, 20, last);
      send(a, 20, next);
      send(b, 20, next);
      ncclGroupEnd();
      rank.holds(c, data(last, 20, 1000), "the first of two");
      rank.holds(d, data(last, 20, 2000), "the second of two");
      // All to all by messages, the rank itself and ghosts among them: p gives q 1 + p + q numbers.
      ncclGroupStart();
      std::vector<std::int32_t*> came;
      for (std::uint32_t p = 0; p < rank.job.world; ++p) {
        const std::size_t count = 1 + rank.own + p;
        send(rank.device(data(rank.own, count, static_cast<std::int32_t>(p) * 7)), count, p);
        came.push_back(rank.room(count));
        receive(came.back(), count, p);
      }
      ncclGroupEnd();
      for (std::uint32_t p = 0; p < rank.job.world; ++p) {
        const bool runs = rank.job.holder(p) == p;
        const std::uint32_t to = runs ? rank.own : p;  // a ghost gives back what it was sent
        rank.holds(came[p],
                   data(runs ? p : rank.own, 1 + rank.own + p, static_cast<std::int32_t>(to) * 7),
                   "an uneven all-to-all");
      }
      // From a rank that does not run, alone: zeros.
      for (std::uint32_t p = 0; p < rank.job.world; ++p) {
        if (rank.job.holder(p) == p) continue;
        auto* from_ghost = rank.device(Ints(5, 9));
        receive(from_ghost, 5, p);
        rank.holds(from_ghost, Ints(5, 0), "a message from a ghost");
      }
    });
  }
}

TEST_CASE("two communicators that two ranks wait for in opposite order") {
  run({2, {0, 1}}, [](Rank& rank) {
    const Handle one = rank.communicator('1'), two = rank.communicator('2');
    void* first = Runtime::get().create_stream(1, 0, 0);
    void* second = Runtime::get().create_stream(1, 0, 0);
    for (std::int32_t round = 0; round < 50; ++round) {
      auto* a = rank.device(data(rank.own, 2000, round));
      auto* b = rank.device(data(rank.own, 2000, -round));
      // Each waits for its first before it issues its second to the other's first.
      const auto on_one = [&] { ncclAllReduce(a, a, 2000, int32, sum, one, first); };
      const auto on_two = [&] { ncclAllReduce(b, b, 2000, int32, sum, two, second); };
      rank.own == 0 ? (on_one(), on_two()) : (on_two(), on_one());
      Ints want_a = data(0, 2000, round), want_b = data(0, 2000, -round);
      for (std::size_t i = 0; i < want_a.size(); ++i) {
        want_a[i] += data(1, 2000, round)[i];
        want_b[i] += data(1, 2000, -round)[i];
        if (i > 20) break;
      }
      want_a.resize(20);
      want_b.resize(20);
      rank.holds(rank.own == 0 ? a : b, rank.own == 0 ? want_a : want_b, "first",
                 rank.own == 0 ? first : second);
      rank.holds(rank.own == 0 ? b : a, rank.own == 0 ? want_b : want_a, "second",
                 rank.own == 0 ? second : first);
    }
  });
}

TEST_CASE("a rank that never looks serves the others") {
  run({2, {0, 1}}, [](Rank& rank) {
    auto* x = rank.device(data(rank.own, 100));
    Ints want = data(0, 100);
    for (std::size_t i = 0; i < want.size(); ++i) want[i] += data(1, 100)[i];
    for (int k = 0; k < 40; ++k) {
      rank.expect(ncclAllReduce(x, x, 100, int32, max, rank.world, nullptr) == 0);
      if (rank.own == 0) rank.holds(x, data(1, 100), "looks each time");
    }
  });
}

TEST_CASE("more bytes than the inboxes hold, most of them never written") {
  run(
      {3, {0, 1, 2}},
      [](Rank& rank) {
        constexpr std::size_t n = 250'000;  // 1 MB each, 4 chunks of 4 KB in an inbox
        auto* own = rank.device(data(rank.own, n));
        auto* all = rank.room(3 * n);
        rank.expect(ncclAllGather(own, all, n, int32, rank.world, nullptr) == 0);
        for (std::uint32_t p = 0; p < 3; ++p) rank.holds(all + p * n, data(p, n), "1 MB each");
        // 8 GB, 3 numbers of which are there.
        constexpr std::size_t huge = std::size_t{2} << 30;
        auto* sparse = rank.room(huge);
        const Ints one{static_cast<std::int32_t>(rank.own) + 1};
        for (const std::size_t at : {std::size_t{5}, huge / 2, huge - 1}) {
          Runtime::get().copy(nullptr, {.to = sparse + at, .from = one.data(), .width = 4}, true);
        }
        rank.expect(ncclAllReduce(sparse, sparse, huge, int32, sum, rank.world, nullptr) == 0);
        for (const std::size_t at : {std::size_t{5}, huge / 2, huge - 1}) {
          rank.holds(sparse + at, Ints{6}, "a huge tensor");
        }
        rank.holds(sparse + 4, Ints{0}, "beside it");
      },
      4);
}

TEST_CASE("a rank that is gone keeps the others no longer than the engine does") {
  const Job job{3, {0, 1, 2}};
  const ExchangeMemory memory = ExchangeMemory::create(job.sandbox);
  const std::vector<pid_t> pids = start(job, memory, [](Rank& rank) {
    if (rank.own == 2) pause();
    auto* x = rank.device(data(rank.own, 100));
    ncclAllReduce(x, x, 100, int32, sum, rank.world, nullptr);
    Session::get().drain_all();
  });
  while (memory.waits_for(0) != 2 || memory.waits_for(1) != 2) usleep(1000);
  kill(pids[2], SIGKILL);
  CHECK(end_of(pids[2]) == SIGKILL);
  memory.close();
  CHECK(end_of(pids[0]) == 0);
  CHECK(end_of(pids[1]) == 0);
}

TEST_CASE("a rank that gave up waits for nobody") {
  const Job job{2, {0, 1}};
  const ExchangeMemory memory = ExchangeMemory::create(job.sandbox);
  const std::vector<pid_t> pids = start(job, memory, [](Rank& rank) {
    auto* x = rank.device(data(rank.own, 100));
    if (rank.own == 1) pause();
    ncclAllReduce(x, x, 100, int32, sum, rank.world, nullptr);
    Session::get().detach();
  });
  CHECK(end_of(pids[0]) == 0);
  kill(pids[1], SIGKILL);
  end_of(pids[1]);
}
