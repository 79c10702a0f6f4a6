// The stream-ordered allocator: one pool a device, without a cache of its own. What is freed goes
// back to the device at once, so used and reserved bytes are the same.
#include <algorithm>
#include <map>
#include <mutex>

#include "vgpu/standins/cudart/cudart.h"
#include "vgpu/standins/device_description.h"

using namespace prism;
using namespace prism::standins;
using vgpu::Runtime;

namespace {

struct Pool {
  int device = 0;
  std::uint64_t threshold = 0;
  std::uint64_t used = 0, peak = 0;
};

struct Pools {
  std::mutex mutex;
  std::map<int, Pool> by_device;
};

Pools& pools() {
  static auto* all = new Pools;
  return *all;
}

}  // namespace

PRISM_CUDART int cudaDeviceGetDefaultMemPool(void** pool, int index) noexcept {
  if (pool == nullptr || !is_device_index(index)) return result(abi::invalid_device);
  Pools& all = pools();
  const std::lock_guard lock(all.mutex);
  Pool& own = all.by_device[index];
  own.device = index;
  *pool = &own;
  return abi::success;
}
PRISM_CUDART int cudaDeviceGetMemPool(void** pool, int index) noexcept {
  return cudaDeviceGetDefaultMemPool(pool, index);
}
PRISM_CUDART int cudaMemPoolSetAttribute(void* pool, int attribute, void* value) noexcept {
  if (pool == nullptr || value == nullptr) return result(abi::invalid_value);
  auto* own = static_cast<Pool*>(pool);
  const std::lock_guard lock(pools().mutex);
  if (attribute >= abi::pool_reuse_first && attribute <= abi::pool_reuse_last) return abi::success;
  const std::uint64_t number = *static_cast<std::uint64_t*>(value);
  if (attribute == abi::pool_release_threshold) {
    own->threshold = number;
  } else if ((attribute == abi::pool_reserved_high || attribute == abi::pool_used_high) &&
             number == 0) {
    own->peak = own->used;
  } else {
    return result(abi::invalid_value);
  }
  return abi::success;
}
PRISM_CUDART int cudaMemPoolGetAttribute(void* pool, int attribute, void* value) noexcept {
  if (pool == nullptr || value == nullptr) return result(abi::invalid_value);
  const auto* own = static_cast<Pool*>(pool);
  const std::lock_guard lock(pools().mutex);
  if (attribute >= abi::pool_reuse_first && attribute <= abi::pool_reuse_last) {
    *static_cast<int*>(value) = 1;
    return abi::success;
  }
  auto& number = *static_cast<std::uint64_t*>(value);
  switch (attribute) {
    case abi::pool_release_threshold:
      number = own->threshold;
      return abi::success;
    case abi::pool_reserved_current:
    case abi::pool_used_current:
      number = own->used;
      return abi::success;
    case abi::pool_reserved_high:
    case abi::pool_used_high:
      number = own->peak;
      return abi::success;
    default:
      return result(abi::invalid_value);
  }
}
PRISM_CUDART int cudaMemPoolTrimTo(void*, std::size_t) noexcept { return abi::success; }
PRISM_CUDART int cudaMemPoolSetAccess(void*, const void*, std::size_t) noexcept {
  return abi::success;
}

PRISM_CUDART int cudaMallocAsync(void** address, std::size_t bytes, void* stream) noexcept {
  const auto device = Runtime::get().stream_device(stream);
  if (address == nullptr || !device) return result(abi::invalid_value);
  *address = nullptr;
  if (bytes == 0) return abi::success;
  const int index = stream == nullptr ? current_device() : *device;
  *address = Runtime::get().allocate(static_cast<std::int64_t>(bytes), index);
  if (*address == nullptr) return result(abi::memory_allocation);
  Pools& all = pools();
  const std::lock_guard lock(all.mutex);
  Pool& pool = all.by_device[index];
  pool.used += bytes;
  pool.peak = std::max(pool.peak, pool.used);
  return abi::success;
}
PRISM_CUDART int cudaFreeAsync(void* address, void*) noexcept {
  if (address == nullptr) return abi::success;
  const vgpu::AddressInfo info = Runtime::get().find(address);
  if (info.base != address || !Runtime::get().free(address, false)) {
    return result(abi::invalid_value);
  }
  Pools& all = pools();
  const std::lock_guard lock(all.mutex);
  Pool& pool = all.by_device[info.device];
  pool.used -= std::min(pool.used, static_cast<std::uint64_t>(info.bytes));
  return abi::success;
}
