#include "device/kernels.h"

namespace prism::device {
namespace {

constexpr std::array<const char*, 5> names = {"prism_pace", "prism_stamp", "prism_copy",
                                              "prism_scale", "prism_fill"};

}  // namespace

Kernels::Kernels(const Driver& driver, std::span<const std::byte> image, const Place& place)
    : driver_(driver) {
  if (image.empty()) {
    throw DriverError(
        "prismcore was built without nvcc, so it has no kernels for the device: make kernels, then "
        "build it again",
        "cuModuleLoadData", invalid_image, place.rank, place.op);
  }
  void* module = nullptr;
  driver.call<Call::module_load>(place, &module, static_cast<const void*>(image.data()));
  module_ = Module(driver, module);
  for (std::size_t i = 0; i < names.size(); ++i) {
    driver.call<Call::module_function>(place, &functions_[i], module, names[i]);
  }
}

void Kernels::launch(std::size_t kernel, void* stream, Grid grid, void* arguments,
                     const Place& place) const {
  void* parameters[] = {arguments};
  driver_.call<Call::launch>(place, functions_[kernel], grid.blocks, 1U, 1U, grid.threads, 1U, 1U,
                             0U, stream, parameters, nullptr);
}
void Kernels::launch(void* stream, Grid grid, PaceArguments arguments, const Place& place) const {
  launch(0, stream, grid, &arguments, place);
}
void Kernels::launch(void* stream, Grid grid, StampArguments arguments, const Place& place) const {
  launch(1, stream, grid, &arguments, place);
}
void Kernels::launch(void* stream, Grid grid, CopyArguments arguments, const Place& place) const {
  launch(2, stream, grid, &arguments, place);
}
void Kernels::launch(void* stream, Grid grid, ScaleArguments arguments, const Place& place) const {
  launch(3, stream, grid, &arguments, place);
}
void Kernels::launch(void* stream, Grid grid, FillArguments arguments, const Place& place) const {
  launch(4, stream, grid, &arguments, place);
}

}  // namespace prism::device
