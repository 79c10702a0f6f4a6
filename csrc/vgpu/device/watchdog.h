// What torch's watchdog threads are told of communication that the program has not waited for.
//
// Torch keeps the tensors of such a launch until its watchdog, which looks every 100 ms, finds the
// launch's end event complete; the group's next launch then drops them (ProcessGroupNCCL.cpp, torch
// 2.14: shelvesToUnstash_). Real time must not decide when that is, or a rank's memory differs from
// run to run. So the watchdog looks at multiples of 100 ms of the rank's own clock: what completes
// later is "not ready" to it, and the program does not go on before the threads have seen what
// completed earlier. Not thread-safe: Session serialises.
#pragma once

#include <cstdint>
#include <vector>

#include "vgpu/device/stream.h"

namespace prism::vgpu {

class WatchdogView {
 public:
  static constexpr std::int64_t period_ns = 100'000'000;  // kWatchdogThreadSleepMillis

  void begin();
  // The end event of a launch was recorded.
  void add(Event& event);
  // The program waits for it, so its tensors are gone; or the event is no more.
  void drop(Event& event);
  // The host's clock is at `now_ns`: whether there is something that the threads must see first.
  bool look(std::int64_t now_ns);
  // All that was added so far is complete: communicators are about to end.
  void show_all();
  // Nobody looks: from here on everything is complete at once.
  void give_up();
  // A thread that is not the program's asks whether an event is complete. `progress`: any count
  // that stands still while the program does.
  bool answer(Event& event, std::uint64_t progress);
  bool all_seen() const noexcept { return unseen_ == 0; }

 private:
  bool program_stands_still(std::uint64_t progress);

  std::vector<Event*> watched_;  // in order of their records
  std::uint32_t unseen_ = 0;     // of these: shown, but not yet seen
  std::int64_t last_look_ns_ = 0;
  bool given_up_ = false;
  std::uint64_t progress_ = 0;  // of the program, when a thread asked in vain
  std::int64_t standing_since_ns_ = 0;
};

}  // namespace prism::vgpu
