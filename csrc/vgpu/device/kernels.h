// Which kernel a launch is: address it is launched by + shape -> id in the recorder, duration.
// Not thread-safe: Session serialises.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cost/cost.h"
#include "cost/launch_counts.h"
#include "graph/kernel.h"

namespace prism::vgpu {

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
  std::deque<std::string> texts_;  // never dropped: views of them are handed out
  std::unordered_map<const void*, std::string_view> names_;
};

// Open addressing, keyed by address: what is known of a launched function, and by address and shape
// the kernel.
class KernelTable {
 public:
  static constexpr std::uint32_t missing = UINT32_MAX;
  struct Function {
    std::string_view name;
    LaunchCounts counts;
  };

  // nullptr: not registered.
  const Function* function(const void* address);
  std::uint32_t find(const void* address, const KernelShape& shape) const noexcept;
  void insert(const void* address, const KernelShape& shape, std::uint32_t kernel);
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
    const void* address = nullptr;
    std::uint32_t kernel = missing;
    KernelShape shape;
  };
  struct FunctionSlot {
    const void* address = nullptr;
    Function function;
  };
  FunctionSlot& function_slot(const void* address) noexcept;
  void grow();
  void grow_functions();

  std::vector<FunctionSlot> functions_;
  std::size_t used_functions_ = 0;
  std::vector<Slot> slots_;
  std::size_t used_ = 0;
  std::vector<std::uint32_t> by_id_;
  std::vector<KernelInfo> kernels_;
};

}  // namespace prism::vgpu
