// The stream-ordered allocator: one pool a device, without a cache of its own. What is freed goes
// back to the device at once, so used and reserved bytes are the same.
#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>

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

struct Block {
  int device = 0;
  std::int64_t bytes = 0;
};

struct Pools {
  std::mutex mutex;
  std::map<int, Pool> by_device;
  std::unordered_map<void*, Block> blocks;
};

Pools& pools() {
  static auto* all = new Pools;
  return *all;
}

}  // namespace

namespace prism::standins {

// To the record the stream-ordered allocator is the framework's: torch reports no blocks of its own
// where it uses it (backend:cudaMallocAsync).
bool forget_pool_block(void* address) {
  Pools& all = pools();
  Block block;
  {
    const std::lock_guard lock(all.mutex);
    const auto it = all.blocks.find(address);
    if (it == all.blocks.end()) return false;
    block = it->second;
    all.blocks.erase(it);
    all.by_device[block.device].used -= static_cast<std::uint64_t>(block.bytes);
  }
  Runtime::get().block_freed(block.bytes);
  return true;
}

}  // namespace prism::standins

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
  if (bytes > static_cast<std::size_t>(INT64_MAX)) return result(abi::memory_allocation);
  const int index = stream == nullptr ? current_device() : *device;
  const auto size = static_cast<std::int64_t>(bytes);
  *address = Runtime::get().allocate(size, index);
  if (*address == nullptr) return result(abi::memory_allocation);
  Runtime::get().block_allocated(*address, size);
  Pools& all = pools();
  const std::lock_guard lock(all.mutex);
  all.blocks[*address] = {index, size};
  Pool& pool = all.by_device[index];
  pool.used += bytes;
  pool.peak = std::max(pool.peak, pool.used);
  return abi::success;
}
PRISM_CUDART int cudaFreeAsync(void* address, void* stream) noexcept {
  if (address == nullptr) return abi::success;
  if (!Runtime::get().stream_device(stream)) return result(abi::invalid_resource_handle);
  if (!forget_pool_block(address)) return result(abi::invalid_value);
  Runtime::get().free(address, false);
  return abi::success;
}

// Memory of captured graphs: there is none.
PRISM_CUDART int cudaDeviceGetGraphMemAttribute(int index, int attribute, void* value) noexcept {
  if (!is_device_index(index)) return result(abi::invalid_device);
  if (attribute < 0 || attribute > abi::graph_memory_last || value == nullptr) {
    return result(abi::invalid_value);
  }
  *static_cast<std::uint64_t*>(value) = 0;
  return abi::success;
}
PRISM_CUDART int cudaDeviceSetGraphMemAttribute(int index, int attribute, void* value) noexcept {
  std::uint64_t now = 0;
  const int error =
      cudaDeviceGetGraphMemAttribute(index, attribute, value == nullptr ? value : &now);
  if (error != abi::success) return error;
  // High-water marks can be reset, and are zero as it is.
  const bool reset = (attribute & 1) != 0 && *static_cast<std::uint64_t*>(value) == 0;
  return reset ? abi::success : result(abi::invalid_value);
}
