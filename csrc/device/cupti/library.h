// CUPTI, found at run time. Every call that may fail is checked: CuptiError names the call, what it
// answered, and what to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "device/cupti/abi.h"
#include "device/cupti/calls.h"

namespace prism::device::cupti {

class Library {
 public:
  // The one at `path`; where that is empty the one that the process has loaded already (torch's),
  // else libcupti.so.13 where the loader finds it. Throws CuptiError where there is none, where it
  // lacks an entry, or where it is older than 13.0. A library that was found stays loaded: it calls
  // back.
  explicit Library(const std::string& path = {});

  std::uint32_t version() const noexcept { return version_; }  // 130001: 13.0, update 1

  void register_callbacks(abi::BufferRequested requested, abi::BufferCompleted completed) const;
  void enable(abi::Kind kind) const;
  void disable(abi::Kind kind) const;
  void enable_call(const Call& call, bool enabled) const;
  void use_system_thread_ids(bool system) const;  // false: the default again
  void flush(std::uint32_t flags) const;
  // Since the last time it was asked.
  std::size_t dropped_records() const;
  std::uint64_t timestamp() const;
  std::uint64_t timestamp_or_zero() const noexcept;  // 0: it failed
  // By handles of the driver; a context of nullptr: the current one.
  std::uint32_t stream_id(void* context, void* stream) const;
  std::uint32_t context_id(void* context) const;
  // The record behind `*record` (nullptr: the first); false: no more. `damaged` is set where the
  // buffer ends in one that is not whole.
  bool next(std::uint8_t* buffer, std::size_t valid, abi::Record** record, bool& damaged) const;

 private:
  void check(int result, const char* call) const;
  [[noreturn]] void fail(int result, const std::string& call) const;

  int (*get_version_)(std::uint32_t*) = nullptr;
  int (*result_string_)(int, const char**) = nullptr;
  int (*register_)(abi::BufferRequested, abi::BufferCompleted) = nullptr;
  int (*enable_)(std::uint32_t) = nullptr;
  int (*disable_)(std::uint32_t) = nullptr;
  int (*enable_runtime_)(std::uint32_t, std::uint8_t) = nullptr;
  int (*enable_driver_)(std::uint32_t, std::uint8_t) = nullptr;
  int (*thread_id_type_)(int) = nullptr;
  int (*flush_all_)(std::uint32_t) = nullptr;
  int (*dropped_)(void*, std::uint32_t, std::size_t*) = nullptr;
  int (*next_)(std::uint8_t*, std::size_t, abi::Record**) = nullptr;
  int (*timestamp_)(std::uint64_t*) = nullptr;
  int (*stream_id_)(void*, void*, std::uint8_t, std::uint32_t*) = nullptr;
  int (*context_id_)(void*, std::uint32_t*) = nullptr;
  std::uint32_t version_ = 0;
};

}  // namespace prism::device::cupti
