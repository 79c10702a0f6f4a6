// The double of the CUDA driver (tests/doubles/driver.cc), and what tests ask of it.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "device/driver.h"

namespace prism::device {

class DriverDouble {
 public:
  explicit DriverDouble(const char* library = PRISM_DOUBLE_DRIVER)
      : library_(dlopen(library, RTLD_NOW | RTLD_LOCAL)), driver(library) {
    REQUIRE(library_ != nullptr);
    reset();
  }
  // Nothing is left taken, whatever happened.
  ~DriverDouble() { CHECK(open() == 0); }
  DriverDouble(const DriverDouble&) = delete;
  DriverDouble& operator=(const DriverDouble&) = delete;

  void reset() const { of<void (*)()>("reset")(); }
  // The call after the next `after` ones of that name fails.
  void fail(const std::string& name, int after, int result) const {
    of<void (*)(const char*, int, int)>("fail")(name.c_str(), after, result);
  }
  std::size_t open() const { return of<std::size_t (*)()>("open")(); }
  void advance(std::uint64_t ns) const { of<void (*)(std::uint64_t)>("advance")(ns); }
  std::uint64_t now() const { return of<std::uint64_t (*)()>("now")(); }
  std::size_t pending(void* stream) const { return of<std::size_t (*)(void*)>("pending")(stream); }
  void capture(void* stream, bool on) const {
    of<void (*)(void*, int)>("capture")(stream, on ? 1 : 0);
  }
  void attribute(int number, int value) const {
    of<void (*)(int, int)>("attribute")(number, value);
  }
  // Host memory that is still taken.
  std::vector<void*> of_host() const {
    const auto get = of<std::size_t (*)(void**, std::size_t)>("host");
    std::vector<void*> taken(get(nullptr, 0));
    get(taken.data(), taken.size());
    return taken;
  }
  // Since the reset, with their arguments.
  std::vector<std::string> calls() const {
    const auto get = of<std::size_t (*)(const char**, std::size_t)>("calls");
    std::vector<const char*> texts(get(nullptr, 0));
    get(texts.data(), texts.size());
    return {texts.begin(), texts.end()};
  }
  // Their names alone.
  std::vector<std::string> names() const {
    std::vector<std::string> names = calls();
    for (std::string& name : names) name.resize(std::min(name.find(' '), name.size()));
    return names;
  }
  // Runs `everything`, and for each call that it made, which now fails with `result`, `again` with
  // the call's name. What destructors call has nobody to tell, and does not fail. Says how many
  // failed.
  template <class Everything, class Again>
  std::size_t fail_each(int result, const Everything& everything, const Again& again) const {
    reset();
    everything();
    std::size_t failures = 0;
    std::map<std::string, int> before;
    for (const std::string& name : names()) {
      const int earlier = before[name]++;
      if (name.ends_with("Destroy") || name.ends_with("Unload") || name.starts_with("cuMemFree") ||
          name.ends_with("Release") || name == "cuCtxPopCurrent") {
        continue;
      }
      reset();
      fail(name, earlier, result);
      again(name);
      ++failures;
    }
    return failures;
  }

 private:
  template <class Function>
  Function of(const std::string& name) const {
    void* found = dlsym(library_, ("driver_double_" + name).c_str());
    REQUIRE(found != nullptr);
    return reinterpret_cast<Function>(found);
  }
  void* library_;

 public:
  const Driver driver;
};

}  // namespace prism::device
