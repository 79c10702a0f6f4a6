// What is taken from the driver and given back: each owns one thing. They are destroyed with the
// context current that they were made in; the driver outlives them.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "device/driver.h"

namespace prism::device {

// A handle that one call gives back. Moves; never copies.
template <Call give_back, class Handle>
class Owned {
 public:
  Owned() = default;
  Owned(const Driver& driver, Handle handle) : driver_(&driver), handle_(handle) {}
  Owned(Owned&& other) noexcept
      : driver_(other.driver_), handle_(std::exchange(other.handle_, Handle{})) {}
  Owned& operator=(Owned&& other) noexcept {
    if (this != &other) {
      reset();
      driver_ = other.driver_;
      handle_ = std::exchange(other.handle_, Handle{});
    }
    return *this;
  }
  ~Owned() { reset(); }

  Handle get() const noexcept { return handle_; }
  explicit operator bool() const noexcept { return handle_ != Handle{}; }
  void reset() noexcept {
    if (handle_ != Handle{}) driver_->template attempt<give_back>(std::exchange(handle_, Handle{}));
  }
  Handle release() noexcept { return std::exchange(handle_, Handle{}); }

 private:
  const Driver* driver_ = nullptr;
  Handle handle_{};
};

using Stream = Owned<Call::stream_destroy, void*>;
using Event = Owned<Call::event_destroy, void*>;
using DeviceMemory = Owned<Call::free, Address>;
using HostMemory = Owned<Call::host_free, void*>;
using Module = Owned<Call::module_unload, void*>;

Stream make_stream(const Driver& driver, const Place& place);
Event make_event(const Driver& driver, unsigned flags, const Place& place);
DeviceMemory make_memory(const Driver& driver, std::size_t bytes, const Place& place);

// The primary context of a device, which torch uses too; kept as long as this lives.
class Context {
 public:
  Context(const Driver& driver, int ordinal, const Place& place);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  void* get() const noexcept { return context_; }
  int device() const noexcept { return device_; }
  int attribute(int number, const Place& place) const;

 private:
  const Driver& driver_;
  int device_ = 0;
  void* context_ = nullptr;
};

// The calling thread's context while this lives.
class Current {
 public:
  Current(const Driver& driver, const Context& context, const Place& place);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Driver& driver_;
};

// Host memory that the device reads and writes too, zero at first.
class Mapped {
 public:
  Mapped(const Driver& driver, std::size_t bytes, const Place& place);
  std::byte* host() const noexcept { return static_cast<std::byte*>(memory_.get()); }
  Address device() const noexcept { return device_; }
  std::size_t bytes() const noexcept { return bytes_; }
  // It is never given back: the device may still use it.
  void leave() noexcept { memory_.release(); }

 private:
  HostMemory memory_;
  Address device_ = 0;
  std::size_t bytes_ = 0;
};

// Legal on any stream at any time.
bool is_capturing(const Driver& driver, void* stream, const Place& place);

}  // namespace prism::device
