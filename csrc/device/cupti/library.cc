#include "device/cupti/library.h"

#include <dlfcn.h>

#include "base/error.h"

namespace prism::device::cupti {
namespace {

constexpr const char* soname = "libcupti.so.13";

void* open(const std::string& path) {
  if (!path.empty()) {
    if (void* given = dlopen(path.c_str(), RTLD_NOW)) return given;
    throw CuptiError("CUPTI: " + path + " cannot be loaded (" + dlerror() +
                     "): install nvidia-cuda-cupti as torch requires it");
  }
  if (void* loaded = dlopen(soname, RTLD_NOW | RTLD_NOLOAD)) return loaded;
  if (void* found = dlopen(soname, RTLD_NOW)) return found;
  throw CuptiError(std::string("CUPTI: no ") + soname +
                   " found, neither loaded by torch nor by the loader's path: install torch's CUDA "
                   "wheel or set LD_LIBRARY_PATH to the toolkit's extras/CUPTI/lib64");
}

template <class Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr) {
    throw CuptiError(std::string("CUPTI: the library has no ") + name +
                     ", which CUPTI has from 13.0 on: use torch's libcupti.so.13");
  }
}

std::string spelled(std::uint32_t version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100);
}

const char* advice(int result) noexcept {
  switch (result) {
    case abi::other_subscriber:
    case abi::old_profiler_in_use:
      return "another profiler holds the device (Nsight, torch.profiler, a debugger): end it, and "
             "collect again";
    case abi::insufficient_privileges:
      return "the driver lets only administrators profile: load it with "
             "NVreg_RestrictProfilingToAdminUsers=0, or add CAP_SYS_ADMIN";
    case abi::virtualized_device:
      return "the device is virtual and gives no profiles: collect without CUPTI";
    case abi::not_compatible:
      return "the driver is older than this CUPTI: use a driver of CUDA 13.0 or newer";
    case abi::not_initialized:
      return "CUPTI could not find the driver: is libcuda.so.1 loaded, is a device there?";
    default:
      return "collect without CUPTI, or report this";
  }
}

}  // namespace

Library::Library(const std::string& path) {
  void* library = open(path);
  find(library, "cuptiGetVersion", get_version_);
  find(library, "cuptiGetResultString", result_string_);
  check(get_version_(&version_), "cuptiGetVersion");
  if (version_ < abi::least_version) {
    throw CuptiError("CUPTI: found version " + spelled(version_) + ", expected " +
                     spelled(abi::least_version) + " or newer: use torch's libcupti.so.13");
  }
  find(library, "cuptiActivityRegisterCallbacks", register_);
  find(library, "cuptiActivityEnable", enable_);
  find(library, "cuptiActivityDisable", disable_);
  find(library, "cuptiActivityEnableRuntimeApi", enable_runtime_);
  find(library, "cuptiActivityEnableDriverApi", enable_driver_);
  find(library, "cuptiSetThreadIdType", thread_id_type_);
  find(library, "cuptiActivityFlushAll", flush_all_);
  find(library, "cuptiActivityGetNumDroppedRecords", dropped_);
  find(library, "cuptiActivityGetNextRecord", next_);
  find(library, "cuptiGetTimestamp", timestamp_);
  find(library, "cuptiGetStreamIdEx", stream_id_);
  find(library, "cuptiGetContextId", context_id_);
}

void Library::fail(int result, const std::string& call) const {
  const char* text = nullptr;
  if (result_string_(result, &text) != abi::success || text == nullptr) text = "no text";
  throw CuptiError("CUPTI: " + call + " answered " + std::to_string(result) + " (" + text +
                   "): " + advice(result));
}

void Library::check(int result, const char* call) const {
  if (result != abi::success) fail(result, call);
}

void Library::register_callbacks(abi::BufferRequested requested,
                                 abi::BufferCompleted completed) const {
  check(register_(requested, completed), "cuptiActivityRegisterCallbacks");
}

void Library::enable(abi::Kind kind) const {
  const auto number = static_cast<std::uint32_t>(kind);
  const int result = enable_(number);
  if (result != abi::success) {
    fail(result, "cuptiActivityEnable of kind " + std::to_string(number));
  }
}

void Library::disable(abi::Kind kind) const {
  check(disable_(static_cast<std::uint32_t>(kind)), "cuptiActivityDisable");
}

void Library::enable_call(const Call& call, bool enabled) const {
  const bool runtime = call.side == CallSide::runtime;
  const int result = (runtime ? enable_runtime_ : enable_driver_)(call.id, enabled ? 1 : 0);
  if (result != abi::success) {
    fail(result,
         std::string(runtime ? "cuptiActivityEnableRuntimeApi" : "cuptiActivityEnableDriverApi") +
             " of " + std::string(call.name));
  }
}

void Library::use_system_thread_ids(bool system) const {
  check(thread_id_type_(system ? abi::thread_id_system : abi::thread_id_default),
        "cuptiSetThreadIdType");
}

void Library::flush(std::uint32_t flags) const {
  check(flush_all_(flags), "cuptiActivityFlushAll");
}

std::size_t Library::dropped_records() const {
  std::size_t dropped = 0;
  check(dropped_(nullptr, 0, &dropped), "cuptiActivityGetNumDroppedRecords");
  return dropped;
}

std::uint64_t Library::timestamp() const {
  std::uint64_t now = 0;
  check(timestamp_(&now), "cuptiGetTimestamp");
  return now;
}

std::uint64_t Library::timestamp_or_zero() const noexcept {
  std::uint64_t now = 0;
  return timestamp_(&now) == abi::success ? now : 0;
}

std::uint32_t Library::stream_id(void* context, void* stream) const {
  std::uint32_t id = 0;
  check(stream_id_(context, stream, 0, &id), "cuptiGetStreamIdEx");
  return id;
}

std::uint32_t Library::context_id(void* context) const {
  std::uint32_t id = 0;
  check(context_id_(context, &id), "cuptiGetContextId");
  return id;
}

bool Library::next(std::uint8_t* buffer, std::size_t valid, abi::Record** record,
                   bool& damaged) const {
  const int result = next_(buffer, valid, record);
  if (result == abi::success) return true;
  if (result == abi::invalid_kind) {
    damaged = true;
  } else if (result != abi::max_limit_reached) {
    fail(result, "cuptiActivityGetNextRecord");
  }
  return false;
}

}  // namespace prism::device::cupti
