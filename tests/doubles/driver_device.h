// The device behind the double of the driver: streams are queues that go on when somebody looks,
// time is a number that passes when it is told to, or when a synchronise finds nothing else to do.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/abi.h"
#include "device/kernels/arguments.h"

namespace driver_double {

using namespace prism::device;

// One piece of work: asked with the time at which it came to the front, until it is done.
struct Work {
  std::function<bool(std::uint64_t began_ns)> done;
  std::function<std::uint64_t(std::uint64_t began_ns)> due_ns;  // nullptr: no time ends it
  bool begun = false;
  std::uint64_t began_ns = 0;
};

struct StreamQueue {
  std::deque<Work> work;
  bool capturing = false;
};

struct EventState {
  std::uint64_t wanted = 0, reached = 0;  // records asked for and done
  std::uint64_t time_ns = 0;
  bool timed = true;
};

struct Device {
  std::recursive_mutex mutex;
  std::vector<std::string> calls;
  std::map<std::string, std::pair<int, int>> failures;  // name -> (calls until it, result)
  std::map<void*, StreamQueue> streams;
  std::map<void*, EventState> events;
  std::map<Address, std::size_t> memory;
  std::map<void*, std::size_t> host;
  std::map<void*, std::string> functions;
  std::set<void*> modules;
  std::vector<void*> contexts;  // pushed
  int retained = 0;
  bool running = false;
  std::map<int, int> processes;  // pid -> state
  std::map<int, int> attributes{{sm_count, 132}, {capability_major, 9}, {can_wait_for_64_bits, 1}};
  std::uint64_t now_ns = 1'000'000'000;
  std::uintptr_t made = 0;
  std::size_t capacity = std::size_t{1} << 30;

  void* make() { return reinterpret_cast<void*>(++made << 8); }
  std::size_t used() const {
    std::size_t sum = 0;
    for (const auto& [address, bytes] : memory) sum += bytes;
    return sum;
  }

  // Whatever can go on goes on.
  void progress() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (auto& [name, stream] : streams) {
        while (!stream.work.empty()) {
          Work& front = stream.work.front();
          if (!front.begun) {
            front.begun = true;
            front.began_ns = now_ns;
          }
          if (!front.done(front.began_ns)) break;
          stream.work.pop_front();
          moved = true;
        }
      }
    }
  }
  // Like a device, it goes on without being asked: a thread that never ends looks again and again.
  void start() {
    if (std::exchange(running, true)) return;
    std::thread([this] {
      for (;;) {
        std::this_thread::sleep_for(std::chrono::microseconds(300));
        const std::lock_guard lock(mutex);
        progress();
      }
    }).detach();
  }
  // Time passes to the next end of a piece of work; false: none ends by time.
  bool pass() {
    std::uint64_t next = no_deadline_ns;
    for (const auto& [name, stream] : streams) {
      if (stream.work.empty() || !stream.work.front().due_ns) continue;
      next = std::min(next, stream.work.front().due_ns(stream.work.front().began_ns));
    }
    if (next == no_deadline_ns) return false;
    now_ns = std::max(now_ns, next);
    return true;
  }
  // Where a real one would wait for ever, this one gives up after some seconds.
  int wait_until(const std::function<bool()>& reached) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (;;) {
      {
        const std::lock_guard lock(mutex);
        progress();
        if (reached()) return success;
        if (pass()) continue;
      }
      if (std::chrono::steady_clock::now() > end) return launch_timeout;
      std::this_thread::yield();
    }
  }
};

inline Device& device() {
  static auto* all = new Device;
  return *all;
}

inline std::uint32_t read32(const void* word) {
  return __atomic_load_n(static_cast<const std::uint32_t*>(word), __ATOMIC_ACQUIRE);
}
inline std::uint64_t read64(const void* word) {
  return __atomic_load_n(static_cast<const std::uint64_t*>(word), __ATOMIC_ACQUIRE);
}
inline void write64(std::uint64_t* word, std::uint64_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

// Our kernels as functions of the host, by name; false: no such kernel.
bool kernel_work(const std::string& name, void** parameters, Work& work);

}  // namespace driver_double
