#include "vgpu/device/watchdog.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"

namespace prism::vgpu {
namespace {

// Real time after which a program that calls nothing is taken to wait for the watchdog itself.
constexpr std::int64_t patience_ns = 5'000'000'000;

std::int64_t real_time_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// What the calling thread was told is complete. It has acted on that when it asks again (torch asks
// for the same event two more times, to end the future and to retire the recorded entry).
struct Told {
  Event* event = nullptr;
  std::uint32_t record = 0;
};
thread_local Told told;

}  // namespace

void WatchdogView::begin() {
  show_all();
  *this = WatchdogView{};
}

void WatchdogView::add(Event& event) {
  if (given_up_) return;
  event.watch = Event::Watch::hidden;
  watched_.push_back(&event);
}

void WatchdogView::drop(Event& event) {
  if (event.watch == Event::Watch::none) return;
  if (event.watch != Event::Watch::hidden) --unseen_;
  event.watch = Event::Watch::none;
  const auto at = std::find(watched_.begin(), watched_.end(), &event);
  PRISM_CHECK(at != watched_.end());
  watched_.erase(at);
}

bool WatchdogView::look(std::int64_t now_ns) {
  const std::int64_t look_ns = now_ns / period_ns * period_ns;
  if (look_ns > last_look_ns_) {
    last_look_ns_ = look_ns;
    for (Event* event : watched_) {
      if (event->watch != Event::Watch::hidden || event->time_ns > look_ns) continue;
      event->watch = Event::Watch::shown;
      ++unseen_;
    }
  }
  return unseen_ != 0;
}

void WatchdogView::show_all() {
  for (Event* event : watched_) event->watch = Event::Watch::none;
  watched_.clear();
  unseen_ = 0;
}

void WatchdogView::give_up() {
  show_all();
  given_up_ = true;
}

bool WatchdogView::answer(Event& event, std::uint64_t progress) {
  if (told.event != nullptr && told.event->watch == Event::Watch::told &&
      told.event->record == told.record) {
    drop(*told.event);
  }
  told = {};
  if (event.watch == Event::Watch::none) return true;
  if (event.watch == Event::Watch::hidden) {
    if (!program_stands_still(progress)) return false;
    show_all();
    return true;
  }
  event.watch = Event::Watch::told;
  told = {&event, event.record};
  return true;
}

bool WatchdogView::program_stands_still(std::uint64_t progress) {
  const std::int64_t now = real_time_ns();
  if (progress != progress_ || standing_since_ns_ == 0) {
    progress_ = progress;
    standing_since_ns_ = now;
  }
  return now - standing_since_ns_ > patience_ns;
}

}  // namespace prism::vgpu
