// CUPTI's clock against the machine's steady clock: what stitching needs to lay ranks beside each
// other, and how far both can be trusted.
#pragma once

#include <cstdint>
#include <vector>

#include "device/cupti/library.h"

namespace prism::device::cupti {

// ns of the steady clock.
std::uint64_t steady_now() noexcept;

class HostClock {
 public:
  struct Anchor {
    std::uint64_t steady = 0, cupti = 0;
    std::uint64_t width = 0;  // between the two readings of the steady clock around CUPTI's
    std::int64_t offset() const noexcept { return static_cast<std::int64_t>(cupti - steady); }
  };

  // Reads both clocks, several times, and keeps the narrowest reading. Throws CuptiError.
  void anchor(const Library& library);
  void add(const Anchor& anchor) { anchors_.push_back(anchor); }
  // CUPTI's clock less the steady one at the first anchor; 0 without any.
  std::int64_t offset_ns() const noexcept;
  // The largest change of that between two anchors, and the widest reading.
  std::int64_t drift_ns() const noexcept;
  std::uint64_t width_ns() const noexcept;

 private:
  std::vector<Anchor> anchors_;
};

}  // namespace prism::device::cupti
