// Bytes from place to place: the load of copies, and what gathers of the uniform ghost contract
// leave.
#include "device/kernels/arguments.h"

using namespace prism::device;

namespace {

__device__ bool is_aligned(const void* at, uint64_t bytes) {
  return (reinterpret_cast<uint64_t>(at) | bytes) % sizeof(uint4) == 0;
}

template <class T>
__device__ void copy(const unsigned char* from, unsigned char* to, uint64_t bytes) {
  const uint64_t count = bytes / sizeof(T), step = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    reinterpret_cast<T*>(to)[i] = reinterpret_cast<const T*>(from)[i];
  }
}

// Where `from` is one of the places inside `to`, it is given its own value.
template <class T>
__device__ void fill(const FillArguments& arguments) {
  const uint64_t count = arguments.to_bytes / sizeof(T), period = arguments.from_bytes / sizeof(T);
  const uint64_t step = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const T value = period == 0 ? T{} : reinterpret_cast<const T*>(arguments.from)[i % period];
    reinterpret_cast<T*>(arguments.to)[i] = value;
  }
}

}  // namespace

extern "C" __global__ void prism_copy(const CopyArguments arguments) {
  const auto [from, to, bytes] = arguments;
  if (is_aligned(from, bytes) && is_aligned(to, bytes)) {
    copy<uint4>(from, to, bytes);
  } else {
    copy<unsigned char>(from, to, bytes);
  }
}

extern "C" __global__ void prism_fill(const FillArguments arguments) {
  if (is_aligned(arguments.from, arguments.from_bytes) &&
      is_aligned(arguments.to, arguments.to_bytes)) {
    fill<uint4>(arguments);
  } else {
    fill<unsigned char>(arguments);
  }
}
