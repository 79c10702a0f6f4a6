// The driver of a real GPU, found at run time: a table of its entry points. Every call of it is
// checked: a failure is a DriverError that names the call, CUDA's name and number of the error, the
// rank and the op. Calls that an old driver lacks are told when they are used.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>

#include "device/abi.h"
#include "device/driver_error.h"

namespace prism::device {

// Whose work a call does, for messages.
struct Place {
  std::int64_t rank = -1;  // in the world; -1: none
  std::int64_t op = -1;    // number in the program of the rank; -1: none

  std::string text() const;  // ", rank 3, op 17"; empty: nobody's
};

class Driver {
 public:
  // `library`: as dlopen takes it. DriverError: it cannot be loaded. It stays loaded for the rest
  // of the process, as the real one demands.
  explicit Driver(std::string library = "libcuda.so.1");
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // DriverError unless it succeeds.
  template <Call which, class... Arguments>
  void call(const Place& place, Arguments... arguments) const {
    if (!has(which)) missing(which, place);
    const int result = entry<which>()(arguments...);
    if (result != success) [[unlikely]] {
      failed(which, result, place);
    }
  }
  // Ready or not: false for "not ready", DriverError for any other failure.
  template <Call which, class... Arguments>
  bool ready(const Place& place, Arguments... arguments) const {
    if (!has(which)) missing(which, place);
    const int result = entry<which>()(arguments...);
    if (result != success && result != not_ready) failed(which, result, place);
    return result == success;
  }
  // For destructors, and where the answer is looked at: CUDA's number; not_found where the driver
  // has no such call.
  template <Call which, class... Arguments>
  int attempt(Arguments... arguments) const noexcept {
    return has(which) ? entry<which>()(arguments...) : static_cast<int>(not_found);
  }

  bool has(Call call) const noexcept { return entries_[static_cast<std::size_t>(call)] != nullptr; }
  // As cuGetErrorName gives it.
  std::string name_of(int result) const;
  const std::string& library() const noexcept { return library_; }
  // 1000 * major + 10 * minor of CUDA; 0: it does not tell.
  int version() const noexcept;

 private:
  template <Call which>
  auto entry() const noexcept {
    return reinterpret_cast<typename CallType<which>::type>(
        entries_[static_cast<std::size_t>(which)]);
  }
  [[noreturn]] void missing(Call call, const Place& place) const;
  [[noreturn]] void failed(Call call, int result, const Place& place) const;

  std::string library_;
  std::array<void*, static_cast<std::size_t>(Call::count)> entries_{};
};

// The symbol of a call.
const char* symbol_of(Call call) noexcept;

}  // namespace prism::device
