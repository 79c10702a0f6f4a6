// Runs independent trials on some threads. Results go where the trial's number says, so they do
// not depend on the number of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

namespace prism::spare {

// `make_worker()` is called once a thread and gives what is called with each trial's number. The
// first error, by thread, is thrown once all threads are done.
template <class MakeWorker>
void run_trials(std::size_t trials, std::size_t threads, const MakeWorker& make_worker) {
  std::atomic<std::size_t> next{0};
  std::vector<std::exception_ptr> errors(
      std::clamp<std::size_t>(threads, 1, std::max<std::size_t>(trials, 1)));
  const auto work = [&](std::exception_ptr& error) {
    try {
      auto worker = make_worker();
      for (std::size_t trial = next++; trial < trials; trial = next++) worker(trial);
    } catch (...) {
      error = std::current_exception();
      next = trials;
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (std::size_t i = 1; i < errors.size(); ++i) {
      helpers.emplace_back([&work, &errors, i] { work(errors[i]); });
    }
    work(errors[0]);
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace prism::spare
