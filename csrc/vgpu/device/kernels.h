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

// A kernel as it is launched: one entry for each address and shape, or for each name and shape
// where it is recorded by name (address nullptr).
struct KernelInfo {
  const void* address = nullptr;
  KernelShape shape;
  std::int64_t duration_ns = 0;
  std::uint64_t launches = 0;
  std::uint32_t id = 0;  // of the recorder
  Provenance provenance = Provenance::unknown;
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
  struct Function {
    std::string_view name;
    LaunchCounts counts;
  };

  // nullptr: not registered.
  const Function* function(const void* address);
  // nullptr: not launched yet.
  KernelInfo* find(const void* address, const KernelShape& shape) noexcept;
  KernelInfo& insert(const KernelInfo& kernel, std::string_view name);
  // The kernel with this id of the recorder; made by `make` if new.
  template <class F>
  KernelInfo& of_id(std::uint32_t id, std::string_view name, F&& make) {
    if (id >= by_id_.size()) by_id_.resize(std::size_t{id} + 1, missing);
    if (by_id_[id] == missing) {
      by_id_[id] = static_cast<std::uint32_t>(kernels_.size());
      kernels_.push_back(make());
      names_.emplace_back(name);
    }
    return kernels_[by_id_[id]];
  }
  std::size_t size() const noexcept { return kernels_.size(); }
  const KernelInfo& operator[](std::size_t i) const noexcept { return kernels_[i]; }
  const std::string& name(std::size_t i) const noexcept { return names_[i]; }

 private:
  static constexpr std::uint32_t missing = UINT32_MAX;
  struct Slot {  // small, so that a look-up touches one line of the table and one kernel
    std::uint32_t tag = 0;
    std::uint32_t kernel = missing;
  };
  struct FunctionSlot {
    const void* address = nullptr;
    Function function;
  };
  FunctionSlot& function_slot(const void* address) noexcept;
  void grow();
  void grow_functions();
  void place(std::uint64_t hash, std::uint32_t kernel) noexcept;

  std::vector<FunctionSlot> functions_;
  std::size_t used_functions_ = 0;
  std::vector<Slot> slots_;
  std::size_t used_ = 0;
  std::vector<std::uint32_t> by_id_;
  std::vector<KernelInfo> kernels_;
  std::vector<std::string> names_;
};

}  // namespace prism::vgpu
