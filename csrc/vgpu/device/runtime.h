// What the CUDA runtime and driver stand-ins need of the virtual GPU beyond Session: memory,
// streams and events, with the meaning that the CUDA runtime documents. Handles are what the
// program holds; one that is not alive is answered with Outcome::bad_handle, device addresses of
// which not all lies in one live block with Outcome::bad_address.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "graph/op.h"
#include "vgpu/device/session.h"

namespace prism::vgpu {

enum class Outcome : std::uint8_t { done, not_ready, bad_handle, bad_address };

struct MemoryUse {
  std::int64_t free_bytes = 0, total_bytes = 0;
};

struct AddressInfo {
  enum class Where : std::uint8_t { unregistered, pinned, device } where = Where::unregistered;
  std::int32_t device = 0;
  void* base = nullptr;
  std::int64_t bytes = 0;
};

class Runtime {
 public:
  static Runtime& get();

  // Of the calling thread.
  static std::int32_t current_device() noexcept;
  static void set_current_device(std::int32_t device) noexcept;

  // Device memory. nullptr: it does not fit (remembered for the report).
  void* allocate(std::int64_t bytes, std::int32_t device);
  // device_waits: as cudaFree, which waits for the device; cudaFreeAsync does not.
  bool free(void* address, bool device_waits = true);
  MemoryUse memory(std::int32_t device) const;
  // Physical memory without an address (cuMemCreate): the same accounting, no address space.
  bool take_memory(std::int64_t bytes, std::int32_t device);
  void give_memory(std::int64_t bytes, std::int32_t device);
  // Address space without memory (cuMemAddressReserve).
  void* reserve_addresses(std::int64_t bytes, std::int32_t device);
  bool release_addresses(void* address);
  // A block of the framework's allocator: reads as zero from here until written.
  void block_allocated(void* address, std::int64_t bytes);
  void block_freed(std::int64_t bytes);
  // Device memory that lost its contents (cuMemUnmap): reads as zero.
  void forget(void* address, std::int64_t bytes);
  AddressInfo find(const void* address) const;

  void* allocate_pinned(std::int64_t bytes);
  bool free_pinned(void* address);
  bool register_pinned(void* address, std::int64_t bytes);
  bool unregister_pinned(void* address);

  // Copies of `rows` rows. `host_asks_now`: the call's synchronous form.
  struct Copy {
    void* to = nullptr;
    const void* from = nullptr;
    std::int64_t width = 0, rows = 1, to_pitch = 0, from_pitch = 0;
  };
  Outcome copy(void* stream, const Copy& copy, bool host_asks_now);
  // `pattern` of 1, 2 or 4 bytes, repeated over `bytes`.
  Outcome set(void* stream, void* to, std::uint32_t pattern, std::int32_t pattern_bytes,
              std::int64_t bytes, bool host_asks_now);

  void* create_stream(std::uint32_t flags, std::int32_t priority, std::int32_t device);
  Outcome destroy_stream(void* stream);
  std::optional<std::int32_t> stream_priority(void* stream) const;
  std::optional<std::int32_t> stream_device(void* stream) const;
  std::optional<std::uint32_t> stream_flags(void* stream) const;
  Outcome synchronize_stream(void* stream);
  Outcome query_stream(void* stream);
  void synchronize_device();
  Outcome host_callback(void* stream, std::function<void()> callback);

  void* create_event(bool timed);
  Outcome destroy_event(void* event);
  Outcome record(void* event, void* stream);
  Outcome wait(void* stream, void* event);
  Outcome synchronize_event(void* event);
  Outcome query_event(void* event);
  // Milliseconds of the rank's clock between two events that have been reached.
  Outcome elapsed(void* start, void* end, float& milliseconds);

 private:
  Runtime();
  Session::Impl& impl_;
};

}  // namespace prism::vgpu
