// All that the NCCL door asks of a device. The virtual GPU is the one implementation now; a real
// GPU will be another behind the same words.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/op.h"

namespace prism::intercept {

struct Touched {
  const void* address = nullptr;
  std::int64_t bytes = 0;
};

class DevicePort {
 public:
  virtual ~DevicePort() = default;

  virtual std::uint32_t rank() const = 0;  // in the world
  virtual std::uint32_t world_size() const = 0;
  virtual std::int32_t compute_capability() const = 0;  // 10 * major + minor
  virtual std::int32_t current_device() const = 0;
  virtual bool is_device(const void* address) const = 0;
  // All of it lies in one live allocation.
  virtual bool is_live(const void* address, std::int64_t bytes) const = 0;
  // nullptr when there is no memory left.
  virtual void* allocate(std::int64_t bytes) = 0;
  virtual bool release(void* address) = 0;

  // unique_id: 128 bytes, empty for a split. Returns the slot.
  virtual std::uint32_t add_communicator(std::string_view name, std::uint32_t size,
                                         std::uint32_t position, std::string_view unique_id) = 0;
  // A communicator of this process is about to end.
  virtual void end_communicator() = 0;
  virtual void set_members(std::uint32_t slot, std::span<const std::uint32_t> members) = 0;
  // One launch. The port fills in times, stream and group flags.
  virtual void communicate(void* stream, std::span<Op> parts) = 0;
  // Work that moves bytes, in stream order; it may read and write device addresses directly.
  virtual void enqueue(void* stream, std::function<void()> move,
                       std::span<const Touched> touches) = 0;
  // Runs all that is enqueued so far, on every stream.
  virtual void settle() = 0;
  virtual void note_written(const void* address, std::int64_t bytes) = 0;
  // Payloads above this do not move.
  virtual std::int64_t real_bytes_limit() const = 0;
};

DevicePort& device_port();

}  // namespace prism::intercept
