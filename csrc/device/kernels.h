// Our kernels on a device: the image that nvcc built (kernels/*.cu), loaded by the driver. A build
// without nvcc has none.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "device/kernels/arguments.h"
#include "device/resource.h"

namespace prism::device {

// A fatbin: sm_80, sm_90, sm_100 and PTX; empty in a build without nvcc.
std::span<const std::byte> kernel_image() noexcept;

struct Grid {
  unsigned blocks = 1;
  unsigned threads = 32;
};

class Kernels {
 public:
  // Into the current context. DriverError: there is no image, or it does not load.
  Kernels(const Driver& driver, std::span<const std::byte> image, const Place& place);

  // Does not block. The struct says which kernel.
  void launch(void* stream, Grid grid, PaceArguments arguments, const Place& place) const;
  void launch(void* stream, Grid grid, StampArguments arguments, const Place& place) const;
  void launch(void* stream, Grid grid, CopyArguments arguments, const Place& place) const;
  void launch(void* stream, Grid grid, ScaleArguments arguments, const Place& place) const;
  void launch(void* stream, Grid grid, FillArguments arguments, const Place& place) const;

 private:
  void launch(std::size_t kernel, void* stream, Grid grid, void* arguments,
              const Place& place) const;

  const Driver& driver_;
  Module module_;
  std::array<void*, 5> functions_{};
};

}  // namespace prism::device
