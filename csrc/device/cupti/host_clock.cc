#include "device/cupti/host_clock.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

namespace prism::device::cupti {
namespace {

constexpr int readings = 5;

}  // namespace

std::uint64_t steady_now() noexcept {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

void HostClock::anchor(const Library& library) {
  Anchor best;
  for (int i = 0; i < readings; ++i) {
    const std::uint64_t before = steady_now();
    const std::uint64_t cupti = library.timestamp();
    const std::uint64_t after = steady_now();
    if (i == 0 || after - before < best.width) {
      best = {before + (after - before) / 2, cupti, after - before};
    }
  }
  add(best);
}

std::int64_t HostClock::offset_ns() const noexcept {
  return anchors_.empty() ? 0 : anchors_.front().offset();
}

std::int64_t HostClock::drift_ns() const noexcept {
  std::int64_t largest = 0;
  for (std::size_t i = 1; i < anchors_.size(); ++i) {
    largest = std::max(largest, std::abs(anchors_[i].offset() - anchors_[i - 1].offset()));
  }
  return largest;
}

std::uint64_t HostClock::width_ns() const noexcept {
  std::uint64_t widest = 0;
  for (const Anchor& anchor : anchors_) widest = std::max(widest, anchor.width);
  return widest;
}

}  // namespace prism::device::cupti
