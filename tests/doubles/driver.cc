// A double of the CUDA driver's library for tests: it notes every call with its arguments in order,
// fails the one it is told to fail, holds streams as long as the words say that they wait for, and
// knows what is still taken. Loaded as the real one is.
#include <cstdlib>

#include "driver_device.h"

using namespace driver_double;

namespace {

template <class... Arguments>
int note(const char* name, Arguments... arguments) {
  std::ostringstream text;
  text << name;
  ((text << ' ' << arguments), ...);
  Device& of = device();
  const std::lock_guard lock(of.mutex);
  of.calls.push_back(text.str());
  const auto failure = of.failures.find(name);
  if (failure == of.failures.end() || failure->second.first-- > 0) return success;
  const int result = failure->second.second;
  of.failures.erase(failure);
  return result;
}

// Work at the end of a stream. What a capture forbids ends the capture, as the driver does it.
int enqueue(void* stream, Work work) {
  Device& of = device();
  const std::lock_guard lock(of.mutex);
  const auto found = of.streams.find(stream);
  if (found == of.streams.end()) return invalid_handle;
  if (found->second.capturing) return success;  // goes into the graph
  found->second.work.push_back(std::move(work));
  of.progress();
  return success;
}

int enqueue(void* stream, std::function<void()> act) {
  return enqueue(stream, {[act = std::move(act)](std::uint64_t) {
                            act();
                            return true;
                          },
                          nullptr});
}

// Calls that are illegal while any stream is captured.
int blocked_by_capture() {
  const std::lock_guard lock(device().mutex);
  for (auto& [name, stream] : device().streams) {
    if (stream.capturing) return capture_unsupported;
  }
  return success;
}

void* page_memory(std::size_t bytes) { return std::aligned_alloc(4096, (bytes + 4095) & ~4095UL); }

void* pointer(Address address) { return reinterpret_cast<void*>(address); }

template <class Map, class Key>
int erase(int result, Map& map, const Key& key) {
  const std::lock_guard lock(device().mutex);
  if (result != success) return result;
  return map.erase(key) == 1 ? success : invalid_value;
}

}  // namespace

#define DOUBLE extern "C" __attribute__((visibility("default")))
#define FAIL_AS(expression)                                 \
  if (const int result = (expression); result != success) { \
    return result;                                          \
  }

// What tests ask and tell.
DOUBLE void driver_double_reset() {
  Device& of = device();
  const std::lock_guard lock(of.mutex);
  of.calls.clear();
  of.failures.clear();
  of.streams.erase(of.streams.begin(), of.streams.end());
  of.streams[nullptr];
  of.processes.clear();
}
DOUBLE void driver_double_fail(const char* name, int after, int result) {
  const std::lock_guard lock(device().mutex);
  device().failures[name] = {after, result};
}
DOUBLE std::size_t driver_double_calls(const char** calls, std::size_t room) {
  const std::lock_guard lock(device().mutex);
  for (std::size_t i = 0; i < device().calls.size() && i < room; ++i) {
    calls[i] = device().calls[i].c_str();
  }
  return device().calls.size();
}
// Streams but the default one, events, memory, modules, contexts that are still taken or pushed.
DOUBLE std::size_t driver_double_open() {
  Device& of = device();
  const std::lock_guard lock(of.mutex);
  return of.streams.size() - of.streams.count(nullptr) + of.events.size() + of.memory.size() +
         of.host.size() + of.modules.size() + of.contexts.size() +
         static_cast<std::size_t>(of.retained);
}
DOUBLE std::size_t driver_double_host(void** taken, std::size_t room) {
  const std::lock_guard lock(device().mutex);
  std::size_t count = 0;
  for (const auto& [memory, bytes] : device().host) {
    if (count++ < room) taken[count - 1] = memory;
  }
  return count;
}
DOUBLE void driver_double_advance(std::uint64_t ns) {
  const std::lock_guard lock(device().mutex);
  device().now_ns += ns;
  device().progress();
}
DOUBLE std::uint64_t driver_double_now() {
  const std::lock_guard lock(device().mutex);
  return device().now_ns;
}
// Pieces of work that have not ended.
DOUBLE std::size_t driver_double_pending(void* stream) {
  const std::lock_guard lock(device().mutex);
  device().progress();
  return device().streams[stream].work.size();
}
DOUBLE void driver_double_capture(void* stream, int on) {
  const std::lock_guard lock(device().mutex);
  device().streams[stream].capturing = on != 0;
}
DOUBLE void driver_double_attribute(int attribute, int value) {
  const std::lock_guard lock(device().mutex);
  device().attributes[attribute] = value;
}

// The driver's.
DOUBLE int cuInit(unsigned flags) { return note("cuInit", flags); }
DOUBLE int cuDriverGetVersion(int* version) {
#ifdef DRIVER_DOUBLE_OLD
  *version = 12040;
#else
  *version = 13000;
#endif
  return note("cuDriverGetVersion");
}
DOUBLE int cuGetErrorName(int result, const char** name) {
  *name = result == out_of_memory   ? "CUDA_ERROR_OUT_OF_MEMORY"
          : result == invalid_value ? "CUDA_ERROR_INVALID_VALUE"
                                    : "CUDA_ERROR_OF_THE_DOUBLE";
  return success;  // not noted: errors only
}
DOUBLE int cuDeviceGetCount(int* count) {
  *count = 1;
  return note("cuDeviceGetCount");
}
DOUBLE int cuDeviceGet(int* made, int ordinal) {
  *made = ordinal;
  FAIL_AS(note("cuDeviceGet", ordinal));
  return ordinal == 0 ? success : invalid_device;
}
DOUBLE int cuDeviceGetAttribute(int* value, int attribute, int of) {
  FAIL_AS(note("cuDeviceGetAttribute", attribute, of));
  const std::lock_guard lock(device().mutex);
  const auto found = device().attributes.find(attribute);
  *value = found == device().attributes.end() ? 0 : found->second;
  return success;
}
DOUBLE int cuDevicePrimaryCtxRetain(void** made, int of) {
  FAIL_AS(note("cuDevicePrimaryCtxRetain", of));
  const std::lock_guard lock(device().mutex);
  ++device().retained;
  device().streams[nullptr];
  device().start();
  *made = &device();
  return success;
}
DOUBLE int cuDevicePrimaryCtxRelease_v2(int of) {
  FAIL_AS(note("cuDevicePrimaryCtxRelease", of));
  const std::lock_guard lock(device().mutex);
  return device().retained-- > 0 ? success : invalid_context;
}
DOUBLE int cuCtxPushCurrent_v2(void* context) {
  FAIL_AS(note("cuCtxPushCurrent"));
  const std::lock_guard lock(device().mutex);
  device().contexts.push_back(context);
  return success;
}
DOUBLE int cuCtxPopCurrent_v2(void** context) {
  FAIL_AS(note("cuCtxPopCurrent"));
  const std::lock_guard lock(device().mutex);
  if (device().contexts.empty()) return invalid_context;
  *context = device().contexts.back();
  device().contexts.pop_back();
  return success;
}
DOUBLE int cuCtxGetCurrent(void** context) {
  FAIL_AS(note("cuCtxGetCurrent"));
  const std::lock_guard lock(device().mutex);
  *context = device().contexts.empty() ? nullptr : device().contexts.back();
  return success;
}
DOUBLE int cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total) {
  FAIL_AS(note("cuMemGetInfo"));
  const std::lock_guard lock(device().mutex);
  *total = device().capacity;
  *free_bytes = *total - device().used();
  return success;
}
DOUBLE int cuMemAlloc_v2(Address* address, std::size_t bytes) {
  FAIL_AS(note("cuMemAlloc", bytes));
  FAIL_AS(blocked_by_capture());
  const std::lock_guard lock(device().mutex);
  if (bytes == 0) return invalid_value;
  if (bytes > device().capacity - device().used()) return out_of_memory;
  *address = reinterpret_cast<Address>(page_memory(bytes));
  device().memory[*address] = bytes;
  return success;
}
DOUBLE int cuMemFree_v2(Address address) {
  FAIL_AS(erase(note("cuMemFree", address), device().memory, address));
  std::free(pointer(address));
  return success;
}
DOUBLE int cuMemHostAlloc(void** memory, std::size_t bytes, unsigned flags) {
  FAIL_AS(note("cuMemHostAlloc", bytes, flags));
  FAIL_AS(blocked_by_capture());
  *memory = page_memory(bytes);
  const std::lock_guard lock(device().mutex);
  device().host[*memory] = bytes;
  return success;
}
DOUBLE int cuMemFreeHost(void* memory) {
  FAIL_AS(erase(note("cuMemFreeHost", memory), device().host, memory));
  std::free(memory);
  return success;
}
DOUBLE int cuMemHostGetDevicePointer_v2(Address* address, void* memory, unsigned flags) {
  FAIL_AS(note("cuMemHostGetDevicePointer", memory, flags));
  *address = reinterpret_cast<Address>(memory);
  return success;
}
DOUBLE int cuStreamCreate(void** made, unsigned flags) {
  FAIL_AS(note("cuStreamCreate", flags));
  const std::lock_guard lock(device().mutex);
  *made = device().make();
  device().streams[*made];
  return success;
}
DOUBLE int cuStreamDestroy_v2(void* stream) {
  return erase(note("cuStreamDestroy", stream), device().streams, stream);
}
DOUBLE int cuStreamQuery(void* stream) {
  FAIL_AS(note("cuStreamQuery", stream));
  const std::lock_guard lock(device().mutex);
  if (device().streams[stream].capturing) return capture_unsupported;
  device().progress();
  return device().streams[stream].work.empty() ? success : not_ready;
}
DOUBLE int cuStreamSynchronize(void* stream) {
  FAIL_AS(note("cuStreamSynchronize", stream));
  FAIL_AS(blocked_by_capture());
  return device().wait_until([&] { return device().streams[stream].work.empty(); });
}
DOUBLE int cuStreamIsCapturing(void* stream, int* status) {
  FAIL_AS(note("cuStreamIsCapturing", stream));
  const std::lock_guard lock(device().mutex);
  *status = device().streams[stream].capturing ? capturing : not_capturing;
  return success;
}
DOUBLE int cuStreamWaitEvent(void* stream, void* event, unsigned flags) {
  FAIL_AS(note("cuStreamWaitEvent", stream, event, flags));
  const std::lock_guard lock(device().mutex);
  const std::uint64_t wanted = device().events[event].wanted;
  return enqueue(stream, {[event, wanted](std::uint64_t) {
                            const auto found = device().events.find(event);
                            return found == device().events.end() ||
                                   found->second.reached >= wanted;
                          },
                          nullptr});
}
DOUBLE int cuStreamWaitValue32_v2(void* stream, Address word, std::uint32_t value, unsigned flags) {
  FAIL_AS(note("cuStreamWaitValue32", stream, word, value, flags));
  return enqueue(stream, {[word, value](std::uint64_t) {
                            return static_cast<std::int32_t>(read32(pointer(word)) - value) >= 0;
                          },
                          nullptr});
}
DOUBLE int cuStreamWaitValue64_v2(void* stream, Address word, std::uint64_t value, unsigned flags) {
  FAIL_AS(note("cuStreamWaitValue64", stream, word, value, flags));
  return enqueue(stream, {[word, value](std::uint64_t) {
                            return static_cast<std::int64_t>(read64(pointer(word)) - value) >= 0;
                          },
                          nullptr});
}
DOUBLE int cuStreamWriteValue32_v2(void* stream, Address word, std::uint32_t value,
                                   unsigned flags) {
  FAIL_AS(note("cuStreamWriteValue32", stream, word, value, flags));
  return enqueue(stream, [word, value] {
    __atomic_store_n(static_cast<std::uint32_t*>(pointer(word)), value, __ATOMIC_RELEASE);
  });
}
DOUBLE int cuStreamWriteValue64_v2(void* stream, Address word, std::uint64_t value,
                                   unsigned flags) {
  FAIL_AS(note("cuStreamWriteValue64", stream, word, value, flags));
  return enqueue(stream,
                 [word, value] { write64(static_cast<std::uint64_t*>(pointer(word)), value); });
}
DOUBLE int cuEventCreate(void** made, unsigned flags) {
  FAIL_AS(note("cuEventCreate", flags));
  const std::lock_guard lock(device().mutex);
  *made = device().make();
  device().events[*made].timed = (flags & event_disable_timing) == 0;
  return success;
}
DOUBLE int cuEventDestroy_v2(void* event) {
  return erase(note("cuEventDestroy", event), device().events, event);
}
DOUBLE int cuEventRecord(void* event, void* stream) {
  FAIL_AS(note("cuEventRecord", event, stream));
  const std::lock_guard lock(device().mutex);
  const std::uint64_t number = ++device().events[event].wanted;
  return enqueue(stream, [event, number] {
    const auto found = device().events.find(event);
    if (found == device().events.end()) return;
    found->second.reached = number;
    found->second.time_ns = device().now_ns;
  });
}
DOUBLE int cuEventQuery(void* event) {
  FAIL_AS(note("cuEventQuery", event));
  FAIL_AS(blocked_by_capture());
  const std::lock_guard lock(device().mutex);
  device().progress();
  return device().events[event].reached == device().events[event].wanted ? success : not_ready;
}
DOUBLE int cuEventSynchronize(void* event) {
  FAIL_AS(note("cuEventSynchronize", event));
  FAIL_AS(blocked_by_capture());
  return device().wait_until(
      [&] { return device().events[event].reached == device().events[event].wanted; });
}
DOUBLE int cuEventElapsedTime(float* ms, void* from, void* to) {
  FAIL_AS(note("cuEventElapsedTime", from, to));
  const std::lock_guard lock(device().mutex);
  const EventState &a = device().events[from], &b = device().events[to];
  if (!a.timed || !b.timed || a.wanted == 0 || b.wanted == 0) return invalid_handle;
  if (a.reached != a.wanted || b.reached != b.wanted) return not_ready;
  *ms = static_cast<float>(static_cast<double>(static_cast<std::int64_t>(b.time_ns - a.time_ns)) *
                           1e-6);
  return success;
}
DOUBLE int cuMemcpyDtoHAsync_v2(void* to, Address from, std::size_t bytes, void* stream) {
  FAIL_AS(note("cuMemcpyDtoHAsync", to, from, bytes, stream));
  return enqueue(stream, [=] { std::memcpy(to, pointer(from), bytes); });
}
DOUBLE int cuMemcpyHtoDAsync_v2(Address to, const void* from, std::size_t bytes, void* stream) {
  FAIL_AS(note("cuMemcpyHtoDAsync", to, from, bytes, stream));
  return enqueue(stream, [=] { std::memcpy(pointer(to), from, bytes); });
}
DOUBLE int cuMemcpyDtoDAsync_v2(Address to, Address from, std::size_t bytes, void* stream) {
  FAIL_AS(note("cuMemcpyDtoDAsync", to, from, bytes, stream));
  return enqueue(stream, [=] { std::memmove(pointer(to), pointer(from), bytes); });
}
DOUBLE int cuMemsetD8Async(Address to, unsigned char value, std::size_t bytes, void* stream) {
  FAIL_AS(note("cuMemsetD8Async", to, static_cast<int>(value), bytes, stream));
  return enqueue(stream, [=] { std::memset(pointer(to), value, bytes); });
}
DOUBLE int cuModuleLoadData(void** made, const void* image) {
  FAIL_AS(note("cuModuleLoadData"));
  FAIL_AS(blocked_by_capture());
  if (image == nullptr) return invalid_image;
  const std::lock_guard lock(device().mutex);
  *made = device().make();
  device().modules.insert(*made);
  return success;
}
DOUBLE int cuModuleUnload(void* module) {
  return erase(note("cuModuleUnload", module), device().modules, module);
}
DOUBLE int cuModuleGetFunction(void** made, void* module, const char* name) {
  FAIL_AS(note("cuModuleGetFunction", module, name));
  const std::lock_guard lock(device().mutex);
  if (std::strncmp(name, "prism_", 6) != 0) return not_found;
  *made = device().make();
  device().functions[*made] = name;
  return success;
}
DOUBLE int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned bx,
                          unsigned by, unsigned bz, unsigned shared, void* stream,
                          void** parameters, void**) {
  const std::lock_guard lock(device().mutex);
  const std::string name = device().functions[function];
  FAIL_AS(note("cuLaunchKernel", name, x, y, z, bx, by, bz, shared, stream));
  Work work;
  if (!kernel_work(name, parameters, work)) return not_supported;
  return enqueue(stream, std::move(work));
}
DOUBLE int cuLaunchHostFunc(void* stream, HostFunction function, void* argument) {
  FAIL_AS(note("cuLaunchHostFunc", stream));
  return enqueue(stream, [=] { function(argument); });
}
#ifndef DRIVER_DOUBLE_OLD  // CUDA 12.8 brought them
DOUBLE int cuCheckpointProcessGetState(int pid, int* state) {
  FAIL_AS(note("cuCheckpointProcessGetState", pid));
  const std::lock_guard lock(device().mutex);
  *state = device().processes[pid];
  return success;
}
namespace {
int step(const char* name, int pid, int from, int to) {
  FAIL_AS(note(name, pid));
  const std::lock_guard lock(device().mutex);
  int& state = device().processes[pid];
  if (state != from) return illegal_state;
  state = to;
  return success;
}
}  // namespace
DOUBLE int cuCheckpointProcessLock(int pid, LockArguments*) {
  return step("cuCheckpointProcessLock", pid, process_running, process_locked);
}
DOUBLE int cuCheckpointProcessCheckpoint(int pid, void*) {
  return step("cuCheckpointProcessCheckpoint", pid, process_locked, process_checkpointed);
}
DOUBLE int cuCheckpointProcessRestore(int pid, void*) {
  return step("cuCheckpointProcessRestore", pid, process_checkpointed, process_locked);
}
DOUBLE int cuCheckpointProcessUnlock(int pid, void*) {
  return step("cuCheckpointProcessUnlock", pid, process_locked, process_running);
}
#endif
