// How long work hears that it is no longer wanted.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

namespace prism::spare {

// Called some times a second by whoever waits for long work; what it throws ends the work.
using Poll = std::function<void()>;

inline constexpr std::chrono::milliseconds kPollEvery{50};

// Loops that poll themselves: `beat` is cheap enough for every turn.
class Pulse {
 public:
  explicit Pulse(const Poll& poll) : poll_(poll) {}

  // `work`: elements looked at, roughly, in this turn.
  void beat(std::int64_t work) {
    if ((left_ -= work) < 0) look_at_the_clock();
  }

 private:
  static constexpr std::int64_t kLook = 1 << 20;  // elements: some milliseconds

  void look_at_the_clock() {
    left_ = kLook;
    const auto now = std::chrono::steady_clock::now();
    if (!poll_ || now - last_ < kPollEvery) return;
    poll_();
    last_ = now;
  }

  const Poll& poll_;
  std::int64_t left_ = kLook;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace prism::spare
