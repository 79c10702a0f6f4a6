// What the kernels of csrc/device/kernels do, done by the host.
#include <cstring>

#include "driver_device.h"

namespace driver_double {
namespace {

Work at_once(std::function<void()> act) {
  return {[act = std::move(act)](std::uint64_t) {
            act();
            return true;
          },
          nullptr};
}

Work pace(const PaceArguments& arguments) {
  const auto due = [arguments](std::uint64_t began) {
    const std::uint64_t own =
        arguments.duration_ns == no_deadline_ns ? no_deadline_ns : began + arguments.duration_ns;
    return std::min(own, arguments.deadline_ns);
  };
  const auto done = [arguments, due](std::uint64_t began) {
    const bool released = arguments.flag != nullptr &&
                          static_cast<std::int32_t>(read32(arguments.flag) - arguments.until) >= 0;
    if (!released && device().now_ns < due(began)) return false;
    if (arguments.ended_ns != nullptr) write64(arguments.ended_ns, device().now_ns);
    return true;
  };
  return {done, due};
}

void fill(const FillArguments& a) {
  for (std::uint64_t i = 0; i < a.to_bytes; ++i) {
    a.to[i] = a.from_bytes == 0 ? 0 : a.from[i % a.from_bytes];
  }
}

}  // namespace

bool kernel_work(const std::string& name, void** parameters, Work& work) {
  if (name == "prism_pace") {
    work = pace(*static_cast<PaceArguments*>(parameters[0]));
  } else if (name == "prism_stamp") {
    const auto arguments = *static_cast<StampArguments*>(parameters[0]);
    work = at_once([arguments] { write64(arguments.time_ns, device().now_ns); });
  } else if (name == "prism_copy") {
    const auto arguments = *static_cast<CopyArguments*>(parameters[0]);
    work = at_once([arguments] { std::memcpy(arguments.to, arguments.from, arguments.bytes); });
  } else if (name == "prism_fill") {
    const auto arguments = *static_cast<FillArguments*>(parameters[0]);
    work = at_once([arguments] { fill(arguments); });
  } else {
    return false;  // prism_scale computes; only a device does
  }
  return true;
}

}  // namespace driver_double
