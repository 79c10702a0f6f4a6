// Runs independent trials on some threads. Results go where the trial's number says, so they do
// not depend on the number of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "spare/poll.h"

namespace prism::spare {

// `make_worker(stopped)` is called once a thread and gives what is called with each trial's number;
// a trial that sees `stopped` returns soon, its result is not used. The first error, by thread, is
// thrown once all threads are done; that of `poll`, which the calling thread calls, comes first.
template <class MakeWorker>
void run_trials(std::size_t trials, std::size_t threads, const Poll& poll,
                const MakeWorker& make_worker) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> stopped{false};
  std::vector<std::exception_ptr> errors(
      std::clamp<std::size_t>(threads, 1, std::max<std::size_t>(trials, 1)));
  std::mutex mutex;
  std::condition_variable ended;
  std::size_t running = errors.size();
  const auto work = [&](std::exception_ptr& error) {
    try {
      auto worker = make_worker(stopped);
      for (std::size_t trial = next++; trial < trials && !stopped; trial = next++) worker(trial);
    } catch (...) {
      error = std::current_exception();
      stopped = true;
    }
    const std::lock_guard lock(mutex);
    if (--running == 0) ended.notify_one();
  };
  std::exception_ptr polled;
  {
    std::vector<std::jthread> helpers;
    try {
      for (std::exception_ptr& error : errors) {
        helpers.emplace_back([&work, &error] { work(error); });
      }
      std::unique_lock lock(mutex);
      while (!ended.wait_for(lock, kPollEvery, [&] { return running == 0; })) {
        if (!poll) continue;
        lock.unlock();
        poll();
        lock.lock();
      }
    } catch (...) {  // of `poll`, or no further thread could be started
      polled = std::current_exception();
      stopped = true;
    }
  }
  if (polled) std::rethrow_exception(polled);
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace prism::spare
