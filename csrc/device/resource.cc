#include "device/resource.h"

#include <cstring>

namespace prism::device {

Stream make_stream(const Driver& driver, const Place& place) {
  void* stream = nullptr;
  driver.call<Call::stream_create>(place, &stream, stream_non_blocking);
  return {driver, stream};
}

Event make_event(const Driver& driver, unsigned flags, const Place& place) {
  void* event = nullptr;
  driver.call<Call::event_create>(place, &event, flags);
  return {driver, event};
}

DeviceMemory make_memory(const Driver& driver, std::size_t bytes, const Place& place) {
  Address address = 0;
  driver.call<Call::allocate>(place, &address, bytes);
  return {driver, address};
}

Context::Context(const Driver& driver, int ordinal, const Place& place) : driver_(driver) {
  driver.call<Call::init>(place, 0U);
  driver.call<Call::device_get>(place, &device_, ordinal);
  driver.call<Call::primary_retain>(place, &context_, device_);
}
Context::~Context() { driver_.attempt<Call::primary_release>(device_); }

int Context::attribute(int number, const Place& place) const {
  int value = 0;
  driver_.call<Call::device_attribute>(place, &value, number, device_);
  return value;
}

Current::Current(const Driver& driver, const Context& context, const Place& place)
    : driver_(driver) {
  driver.call<Call::context_push>(place, context.get());
}
Current::~Current() {
  void* was = nullptr;
  driver_.attempt<Call::context_pop>(&was);
}

Mapped::Mapped(const Driver& driver, std::size_t bytes, const Place& place) : bytes_(bytes) {
  void* memory = nullptr;
  driver.call<Call::host_allocate>(place, &memory, bytes, host_portable | host_mapped);
  memory_ = HostMemory(driver, memory);
  driver.call<Call::host_address>(place, &device_, memory, 0U);
  std::memset(memory, 0, bytes);
}

bool is_capturing(const Driver& driver, void* stream, const Place& place) {
  int status = not_capturing;
  driver.call<Call::stream_is_capturing>(place, stream, &status);
  return status != not_capturing;
}

}  // namespace prism::device
