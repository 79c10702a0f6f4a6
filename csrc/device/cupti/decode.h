// CUPTI's records into rows.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "device/cupti/library.h"
#include "device/cupti/rows.h"

namespace prism::device::cupti {

class Decoder {
 public:
  explicit Decoder(const Library& library) : library_(library) {}

  // One buffer that CUPTI gave back. Not thread-safe.
  void read(std::uint8_t* buffer, std::size_t valid_bytes);
  Rows& rows() noexcept { return rows_; }

 private:
  void add(const abi::Record& record);
  void add_kernel(const abi::Kernel& kernel);
  void add_work(WorkRow row);
  std::uint32_t kernel_id(const char* name, const KernelShape& shape);

  struct Hash {
    std::size_t operator()(const KernelRow& kernel) const noexcept;
  };
  struct Equal {
    bool operator()(const KernelRow& a, const KernelRow& b) const noexcept {
      return a.shape == b.shape && a.name == b.name;
    }
  };

  const Library& library_;
  Rows rows_;
  KernelRow looked_up_;  // its text's memory is used again
  std::unordered_map<KernelRow, std::uint32_t, Hash, Equal> kernels_;
};

}  // namespace prism::device::cupti
