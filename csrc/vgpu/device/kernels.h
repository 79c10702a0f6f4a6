// Which kernel a launch is: host stub address + launch shape -> id in the recorder, duration.
// Not thread-safe: Session serialises.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cost/cost.h"
#include "graph/kernel.h"

namespace prism::vgpu {

struct LaunchShape {
  std::array<std::uint32_t, 3> grid{1, 1, 1};
  std::array<std::uint32_t, 3> block{1, 1, 1};
  std::uint32_t shared_bytes = 0;
  friend bool operator==(const LaunchShape&, const LaunchShape&) = default;
};

struct KernelInfo {
  std::uint32_t id = 0;  // of the recorder
  Provenance provenance = Provenance::unknown;
  std::int64_t duration_ns = 0;
  std::uint64_t launches = 0;
  std::string name;
};

// Names of kernels by the address the program launches them by. Filled before main() by the
// registration code that nvcc puts into every library, so it is made on first use. Thread-safe.
class FunctionNames {
 public:
  static FunctionNames& get();
  void add(const void* function, std::string_view name);
  std::string_view find(const void* function) const;  // "" if unknown

 private:
  mutable std::mutex mutex_;
  std::unordered_map<const void*, std::string> names_;
};

// Open addressing over (function, launch shape); values are indices into a list of kernels.
class KernelTable {
 public:
  static constexpr std::uint32_t missing = UINT32_MAX;

  std::uint32_t find(const void* function, const LaunchShape& shape) const noexcept;
  void insert(const void* function, const LaunchShape& shape, std::uint32_t kernel);
  // The kernel with this id of the recorder; made by `make` if new.
  template <class F>
  std::uint32_t of_id(std::uint32_t id, F&& make) {
    if (id >= by_id_.size()) by_id_.resize(std::size_t{id} + 1, missing);
    if (by_id_[id] == missing) {
      by_id_[id] = static_cast<std::uint32_t>(kernels_.size());
      kernels_.push_back(make());
    }
    return by_id_[id];
  }
  KernelInfo& operator[](std::uint32_t kernel) noexcept { return kernels_[kernel]; }
  const std::vector<KernelInfo>& all() const noexcept { return kernels_; }

 private:
  struct Slot {
    const void* function = nullptr;
    LaunchShape shape;
    std::uint32_t kernel = missing;
  };
  static std::size_t hash(const void* function, const LaunchShape& shape) noexcept;
  void grow();

  std::vector<Slot> slots_;
  std::size_t used_ = 0;
  std::vector<std::uint32_t> by_id_;
  std::vector<KernelInfo> kernels_;
};

}  // namespace prism::vgpu
