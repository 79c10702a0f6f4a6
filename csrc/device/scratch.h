// Device memory in which the bytes move that a ghost's edges would move: nobody reads them.
#pragma once

#include <cstdint>

#include "device/resource.h"

namespace prism::device {

class Scratch {
 public:
  // Of so many bytes, two at least, in the current context; zeroed on `stream`.
  Scratch(const Driver& driver, std::int64_t bytes, void* stream, const Place& place);

  // Copies on the device, as many as it takes for so many bytes. Does not block; legal on a stream
  // that is being captured.
  void move(void* stream, std::int64_t bytes, const Place& place) const;
  std::int64_t bytes() const noexcept { return 2 * half_; }
  Address address() const noexcept { return memory_.get(); }

 private:
  const Driver& driver_;
  std::int64_t half_;
  DeviceMemory memory_;
};

}  // namespace prism::device
