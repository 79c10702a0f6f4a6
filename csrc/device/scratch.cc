#include "device/scratch.h"

#include <algorithm>

namespace prism::device {

Scratch::Scratch(const Driver& driver, std::int64_t bytes, void* stream, const Place& place)
    : driver_(driver),
      half_(std::max<std::int64_t>(bytes / 2, 1)),
      memory_(make_memory(driver, static_cast<std::size_t>(2 * half_), place)) {
  driver.call<Call::set_bytes>(place, memory_.get(), static_cast<unsigned char>(0),
                               static_cast<std::size_t>(2 * half_), stream);
}

void Scratch::move(void* stream, std::int64_t bytes, const Place& place) const {
  const Address to = memory_.get() + static_cast<Address>(half_);
  for (std::int64_t left = bytes; left > 0; left -= half_) {
    driver_.call<Call::copy_on_device>(place, to, memory_.get(),
                                       static_cast<std::size_t>(std::min(left, half_)), stream);
  }
}

}  // namespace prism::device
