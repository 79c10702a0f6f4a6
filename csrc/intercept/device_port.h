// All that the NCCL door asks of a device. The virtual GPU is the one implementation now; a real
// GPU will be another behind the same words.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/op.h"
#include "vgpu/device/company.h"

namespace prism::intercept {

struct Touched {
  const void* address = nullptr;
  std::int64_t bytes = 0;
};

class RealLibrary;

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
  // The NCCL behind the door; nullptr: the door answers every communicator. Unique ids are its own.
  virtual const RealLibrary* real_nccl() const { return nullptr; }
  // Whether all of a communicator's members run, so that the real NCCL serves it. Its members are
  // told by position where they are known.
  virtual bool goes_straight(std::string_view name, std::uint32_t size, std::uint32_t position,
                             std::string_view unique_id,
                             std::span<const std::uint32_t> members) const {
    static_cast<void>(name), static_cast<void>(size), static_cast<void>(position);
    static_cast<void>(unique_id), static_cast<void>(members);
    return false;
  }
  // A communicator of this process is about to end.
  virtual void end_communicator() = 0;
  virtual void set_members(std::uint32_t slot, std::span<const std::uint32_t> members) = 0;
  // One launch. The port fills in times, stream and group flags.
  virtual void communicate(void* stream, std::span<Op> parts) = 0;
  // Work that moves bytes, in stream order; it may read and write device addresses directly.
  virtual void enqueue(void* stream, std::function<void()> move,
                       std::span<const Touched> touches) = 0;
  // Work with other ranks, in stream order: called again and again until it lacks nothing.
  virtual void enqueue_step(void* stream, std::function<vgpu::Lacks()> step,
                            std::span<const Touched> touches) = 0;
  // What is enqueued on `stream` from now on comes after all that is enqueued anywhere now.
  virtual void follow_all(void* stream) = 0;
  // The members of a communicator that run beside this rank, once it was used; nullptr: none.
  virtual std::shared_ptr<const vgpu::Company> company(std::uint32_t slot) const = 0;
  // The parts of it that do not read as zero for having never been written.
  virtual std::vector<Touched> written(const void* address, std::int64_t bytes) const = 0;
  virtual void clear(void* address, std::int64_t bytes) = 0;  // reads as zero
  virtual void note_written(const void* address, std::int64_t bytes) = 0;
  // Payloads above this do not move.
  virtual std::int64_t real_bytes_limit() const = 0;
};

DevicePort& device_port();
// The device of this process from now on; nullptr: the virtual GPU. To be called before any other
// call of the door.
void use_device_port(DevicePort* port) noexcept;

}  // namespace prism::intercept
