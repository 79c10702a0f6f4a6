#include "device/driver.h"

#include <dlfcn.h>

#include <utility>

namespace prism::device {
namespace {

struct Row {
  const char* symbol;
  int since;
};
constexpr Row rows[] = {
#define PRISM_DRIVER_ROW(word, symbol, since, parameters) {symbol, since},
    PRISM_DRIVER_CALLS(PRISM_DRIVER_ROW)
#undef PRISM_DRIVER_ROW
};
static_assert(std::size(rows) == static_cast<std::size_t>(Call::count));

const Row& row_of(Call call) { return rows[static_cast<std::size_t>(call)]; }

std::string cuda_version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

const char* what_to_do(int result) {
  switch (result) {
    case out_of_memory:
      return "free memory on the device, or put fewer ranks on it";
    case not_initialized:
    case no_device:
    case invalid_device:
      return "look with nvidia-smi which devices there are, and at CUDA_VISIBLE_DEVICES; without "
             "a GPU use --device virtual:PROFILE";
    case driver_mismatch:
      return "update the NVIDIA driver, and restart what still uses the old one";
    case deinitialized:
    case invalid_context:
    case context_is_destroyed:
      return "the program destroyed or reset its device; end it after prismcore has ended";
    case invalid_image:
    case no_binary_for_gpu:
      return "prismcore's kernels are for sm_80 and later; rebuild it with nvcc for this device";
    case illegal_address:
    case launch_timeout:
    case launch_failed:
      return "an earlier kernel failed; run the program without prismcore, with "
             "CUDA_LAUNCH_BLOCKING=1, to find which";
    case not_permitted:
    case not_supported:
      return "this device or driver cannot do it; see prism doctor";
    default:
      return result >= capture_unsupported && result < capture_unsupported + 9
                 ? "the stream is being captured into a CUDA graph; run without CUDA graphs"
                 : "see this error in the CUDA driver API's documentation";
  }
}

}  // namespace

std::string Place::text() const {
  std::string text;
  if (rank >= 0) text += ", rank " + std::to_string(rank);
  if (op >= 0) text += ", op " + std::to_string(op);
  return text;
}

const char* symbol_of(Call call) noexcept { return row_of(call).symbol; }

Driver::Driver(std::string library) : library_(std::move(library)) {
  void* handle = dlopen(library_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    throw DriverError(
        "the CUDA driver cannot be loaded: " + std::string(why != nullptr ? why : library_) +
            ": install the NVIDIA driver, or use --device virtual:PROFILE",
        "dlopen", -1, -1, -1);
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) entries_[i] = dlsym(handle, rows[i].symbol);
}

int Driver::version() const noexcept {
  int version = 0;
  return attempt<Call::driver_version>(&version) == success ? version : 0;
}

std::string Driver::name_of(int result) const {
  const char* name = nullptr;
  if (attempt<Call::error_name>(result, &name) == success && name != nullptr) return name;
  return "CUDA error";
}

void Driver::missing(Call call, const Place& place) const {
  const Row& row = row_of(call);
  const int have = version();
  throw DriverError(std::string(row.symbol) + ": not in " + library_ +
                        (have > 0 ? ", a driver of CUDA " + cuda_version(have) : std::string()) +
                        place.text() + ": it needs a driver of CUDA " + cuda_version(row.since) +
                        " or later",
                    row.symbol, not_found, place.rank, place.op);
}

void Driver::failed(Call call, int result, const Place& place) const {
  const char* symbol = row_of(call).symbol;
  throw DriverError(std::string(symbol) + ": " + name_of(result) + " (" + std::to_string(result) +
                        ")" + place.text() + ": " + what_to_do(result),
                    symbol, result, place.rank, place.op);
}

}  // namespace prism::device
