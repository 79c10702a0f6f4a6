// What the arguments of a launch tell about its work, where name and grid do not: element counts,
// widths of rows. Which argument that is, is known for kernels of torch by the parameter lists that
// their mangled names spell out, and for three structures passed by value (torch 2.14's reduction,
// concatenation and tensor lists), believed only where their contents agree with the launch.
#pragma once

#include <cstdint>
#include <string_view>

#include "graph/kernel.h"

namespace prism {

class KernelName;

class LaunchCounts {
 public:
  LaunchCounts() = default;                              // tells nothing
  explicit LaunchCounts(std::string_view mangled_name);  // once for a function: parses the name

  bool tells() const noexcept { return how_ != How::nothing; }
  // Sets shape.gemm.n and .k (m stays 0); shape holds the launch's grid and block. `arguments` as
  // cudaLaunchKernel takes them: one address for each parameter. No allocation.
  void read(const void* const* arguments, KernelShape& shape) const noexcept;

 private:
  enum class How : std::uint8_t {
    nothing,
    numbers,
    product,
    reduction,
    concatenation,
    tensor_lists
  };
  struct Field {
    std::uint8_t parameter = 0;
    std::uint8_t bytes = 0;  // 0: none
  };
  void set_tensor_lists(const KernelName& name);
  static std::int64_t number(const Field& field, const void* const* arguments) noexcept;
  static void read_reduction(const void* operation, KernelShape& shape) noexcept;
  void read_concatenation(const void* inputs, KernelShape& shape) const noexcept;
  void read_tensor_lists(const void* metadata, KernelShape& shape) const noexcept;

  How how_ = How::nothing;
  Field first_, second_;
  std::uint32_t slots_ = 0;        // room of a structure: inputs, or tensors
  std::uint32_t extra_bytes_ = 0;  // multi-tensor: of a tensor, after its count
  std::uint32_t lists_ = 0;        // multi-tensor: lists of tensors
};

}  // namespace prism
