// Virtual memory management (what expandable segments use), plain allocation, pointers.
#include "vgpu/device/memory.h"

#include <iterator>
#include <map>
#include <mutex>

#include "vgpu/standins/device_description.h"
#include "vgpu/standins/driver/driver.h"

using namespace prism;
using namespace prism::standins;
using vgpu::Runtime;

namespace {

constexpr std::size_t granularity = vgpu::DeviceMemory::granularity;

// Physical memory: given back when it is released and mapped nowhere.
struct Physical {
  std::int64_t bytes = 0;
  int device = 0;
  int users = 0;  // the handle itself, and each mapping
};

struct Mapping {
  std::int64_t bytes = 0;
  Address physical = 0;
};

struct State {
  std::mutex mutex;
  std::map<Address, Physical> physical;  // by handle
  std::map<Address, Mapping> mapped;     // by address
  Address next_handle = 1;
};

State& state() {
  static auto* all = new State;
  return *all;
}

bool overlaps(const State& all, Address address, std::size_t bytes) {
  auto it = all.mapped.lower_bound(address);
  if (it != all.mapped.end() && it->first - address < bytes) return true;
  return it != all.mapped.begin() &&
         address - std::prev(it)->first < static_cast<Address>(std::prev(it)->second.bytes);
}

void drop(State& all, std::map<Address, Physical>::iterator it) {
  if (--it->second.users > 0) return;
  Runtime::get().give_memory(it->second.bytes, it->second.device);
  all.physical.erase(it);
}

}  // namespace

PRISM_CUDA int cuMemGetAllocationGranularity(std::size_t* out, const driver::AllocationProperties*,
                                             int) noexcept {
  *out = granularity;
  return driver::success;
}
PRISM_CUDA int cuMemAddressReserve(Address* address, std::size_t bytes, std::size_t, Address,
                                   unsigned long long) noexcept {
  if (address == nullptr || bytes == 0) return driver::invalid_value;
  void* reserved =
      Runtime::get().reserve_addresses(static_cast<std::int64_t>(bytes), Runtime::current_device());
  *address = reinterpret_cast<std::uintptr_t>(reserved);
  return reserved != nullptr ? driver::success : driver::out_of_memory;
}
PRISM_CUDA int cuMemAddressFree(Address address, std::size_t bytes) noexcept {
  {
    State& all = state();
    const std::lock_guard lock(all.mutex);
    const auto it = all.mapped.lower_bound(address);
    if (it != all.mapped.end() && it->first - address < bytes) return driver::invalid_value;
  }
  return Runtime::get().release_addresses(pointer(address)) ? driver::success
                                                            : driver::invalid_value;
}
PRISM_CUDA int cuMemCreate(Address* handle, std::size_t bytes,
                           const driver::AllocationProperties* properties,
                           unsigned long long) noexcept {
  if (handle == nullptr || properties == nullptr || bytes == 0 || bytes % granularity != 0 ||
      !is_device_index(properties->location_id)) {
    return driver::invalid_value;
  }
  const auto size = static_cast<std::int64_t>(bytes);
  if (!Runtime::get().take_memory(size, properties->location_id)) return driver::out_of_memory;
  State& all = state();
  const std::lock_guard lock(all.mutex);
  *handle = all.next_handle++;
  all.physical[*handle] = {size, properties->location_id, 1};
  return driver::success;
}
PRISM_CUDA int cuMemRelease(Address handle) noexcept {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  const auto it = all.physical.find(handle);
  if (it == all.physical.end()) return driver::invalid_value;
  drop(all, it);
  return driver::success;
}
PRISM_CUDA int cuMemMap(Address address, std::size_t bytes, std::size_t offset, Address handle,
                        unsigned long long) noexcept {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  const auto it = all.physical.find(handle);
  const bool reserved =
      Runtime::get().find(pointer(address)).where == vgpu::AddressInfo::Where::device;
  if (it == all.physical.end() || offset != 0 || bytes == 0 || !reserved ||
      bytes > static_cast<std::size_t>(it->second.bytes) || overlaps(all, address, bytes)) {
    return driver::invalid_value;
  }
  ++it->second.users;
  all.mapped[address] = {static_cast<std::int64_t>(bytes), handle};
  return driver::success;
}
PRISM_CUDA int cuMemUnmap(Address address, std::size_t bytes) noexcept {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  auto it = all.mapped.lower_bound(address);
  if (it == all.mapped.end() || it->first != address) return driver::invalid_value;
  while (it != all.mapped.end() && it->first - address < bytes) {
    Runtime::get().forget(pointer(it->first), it->second.bytes);
    drop(all, all.physical.find(it->second.physical));
    it = all.mapped.erase(it);
  }
  return driver::success;
}
PRISM_CUDA int cuMemSetAccess(Address, std::size_t, const void*, std::size_t) noexcept {
  return driver::success;  // every device of the process may
}

PRISM_CUDA int cuMemAlloc_v2(Address* address, std::size_t bytes) noexcept {
  if (address == nullptr || bytes == 0) return driver::invalid_value;
  void* block =
      Runtime::get().allocate(static_cast<std::int64_t>(bytes), Runtime::current_device());
  *address = reinterpret_cast<std::uintptr_t>(block);
  return block != nullptr ? driver::success : driver::out_of_memory;
}
PRISM_CUDA int cuMemFree_v2(Address address) noexcept {
  return Runtime::get().free(pointer(address)) ? driver::success : driver::invalid_value;
}
PRISM_CUDA int cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total) noexcept {
  const vgpu::MemoryUse use = Runtime::get().memory(Runtime::current_device());
  *free_bytes = static_cast<std::size_t>(use.free_bytes);
  *total = static_cast<std::size_t>(use.total_bytes);
  return driver::success;
}
PRISM_CUDA int cuMemGetAddressRange_v2(Address* base, std::size_t* bytes,
                                       Address address) noexcept {
  const vgpu::AddressInfo info = Runtime::get().find(pointer(address));
  if (info.where != vgpu::AddressInfo::Where::device) return driver::not_found;
  if (base != nullptr) *base = reinterpret_cast<std::uintptr_t>(info.base);
  if (bytes != nullptr) *bytes = static_cast<std::size_t>(info.bytes);
  return driver::success;
}
PRISM_CUDA int cuMemsetD32Async(Address to, unsigned value, std::size_t count,
                                void* stream) noexcept {
  if (count > std::size_t{INT64_MAX} / 4) return driver::invalid_value;
  return driver_result(Runtime::get().set(stream, pointer(to), value, 4,
                                          static_cast<std::int64_t>(count) * 4, false));
}
PRISM_CUDA int cuMemsetD8Async(Address to, unsigned char value, std::size_t count,
                               void* stream) noexcept {
  return driver_result(
      Runtime::get().set(stream, pointer(to), value, 1, static_cast<std::int64_t>(count), false));
}

PRISM_CUDA int cuPointerGetAttribute(void* out, int attribute, Address address) noexcept {
  const vgpu::AddressInfo info = Runtime::get().find(pointer(address));
  if (out == nullptr || info.where == vgpu::AddressInfo::Where::unregistered) {
    return driver::invalid_value;  // as for memory that CUDA does not know
  }
  const bool on_device = info.where == vgpu::AddressInfo::Where::device;
  switch (attribute) {
    case driver::pointer_memory_type:
      *static_cast<unsigned*>(out) = on_device ? driver::memory_device : driver::memory_host;
      return driver::success;
    case driver::pointer_device:
      *static_cast<Address*>(out) = address;
      return driver::success;
    case driver::pointer_host:
      if (on_device) return driver::invalid_value;
      *static_cast<Address*>(out) = address;
      return driver::success;
    case driver::pointer_is_managed:
      *static_cast<unsigned*>(out) = 0;
      return driver::success;
    case driver::pointer_device_ordinal:
      *static_cast<int*>(out) = info.device;
      return driver::success;
    case driver::pointer_range_start:
      *static_cast<Address*>(out) = reinterpret_cast<std::uintptr_t>(info.base);
      return driver::success;
    case driver::pointer_range_size:
      *static_cast<std::size_t*>(out) = static_cast<std::size_t>(info.bytes);
      return driver::success;
    default:
      return unimplemented("cuda", "cuPointerGetAttribute", driver::not_supported);
  }
}
PRISM_CUDA int cuPointerGetAttributes(unsigned count, const int* attributes, void** out,
                                      Address address) noexcept {
  // Unlike the single form this one succeeds for memory that CUDA does not know, with zeros.
  for (unsigned i = 0; i < count; ++i) {
    if (cuPointerGetAttribute(out[i], attributes[i], address) != driver::success) {
      *static_cast<int*>(out[i]) = 0;
    }
  }
  return driver::success;
}
