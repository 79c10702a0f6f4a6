// Checks that NCCL calls have in common. Every failure is one line: which call, on which
// communicator, what was found, what was expected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "intercept/communicator.h"
#include "intercept/launch.h"
#include "vgpu/abi/nccl.h"

namespace prism::intercept {

// One NCCL call while its arguments are checked; `result` is the first failure.
class Check {
 public:
  Check(const char* function, Handle handle);

  // Element type and count; `copies` buffers of count elements must be addressable.
  Check& elements(std::size_t count, int dtype, std::uint64_t copies = 1);
  // `copies` times count elements of device memory, unless nothing is moved.
  Check& buffer(const char* what, const void* address, std::uint64_t copies = 1);
  Check& rank(const char* what, int rank);
  Check& reduction(int op);
  Check& fail(abi::nccl::Result result, const std::string& what);

  bool ok() const noexcept { return result_ == abi::nccl::success; }
  abi::nccl::Result result() const noexcept { return result_; }
  const CommunicatorPtr& communicator() const noexcept { return communicator_; }
  DataType dtype() const noexcept { return dtype_; }
  std::int64_t bytes() const noexcept { return bytes_; }  // of count elements
  const UniformReduction& uniform() const noexcept { return uniform_; }
  const void* device_scalar() const noexcept { return device_scalar_; }
  int real_op() const noexcept { return real_op_; }

 private:
  const char* function_;
  CommunicatorPtr communicator_;
  abi::nccl::Result result_ = abi::nccl::success;
  DataType dtype_ = DataType::none;
  std::int64_t bytes_ = 0;
  UniformReduction uniform_;
  const void* device_scalar_ = nullptr;
  int real_op_ = 0;
};

}  // namespace prism::intercept
