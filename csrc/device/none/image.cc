// The build without nvcc: no kernels.
#include "device/kernels.h"

namespace prism::device {
std::span<const std::byte> kernel_image() noexcept { return {}; }
}  // namespace prism::device
