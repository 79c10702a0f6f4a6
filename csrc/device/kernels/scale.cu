// SUM of the uniform ghost contract: every absent member holds the same, so the sum is ranks times
// the own data. Rounds as csrc/intercept/contract.cc does: once, from double; integers wrap; 8-bit
// floats saturate.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "device/kernels/arguments.h"

using namespace prism::device;

namespace {

struct Half {
  static __device__ double real(__half x) { return static_cast<double>(__half2float(x)); }
  static __device__ __half code(double x) { return __double2half(x); }
};
struct Bfloat {
  static __device__ double real(__nv_bfloat16 x) {
    return static_cast<double>(__bfloat162float(x));
  }
  static __device__ __nv_bfloat16 code(double x) { return __double2bfloat16(x); }
};
template <__nv_fp8_interpretation_t kind>
struct Narrow {
  static __device__ double real(__nv_fp8_storage_t x) {
    return static_cast<double>(__half2float(__half(__nv_cvt_fp8_to_halfraw(x, kind))));
  }
  static __device__ __nv_fp8_storage_t code(double x) {
    return __nv_cvt_double_to_fp8(x, __NV_SATFINITE, kind);
  }
};

template <class T, class Act>
__device__ void each(const ScaleArguments& arguments, Act act) {
  const auto* from = static_cast<const T*>(arguments.from);
  auto* to = static_cast<T*>(arguments.to);
  const uint64_t step = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < arguments.count;
       i += step) {
    to[i] = act(from[i]);
  }
}

template <class T>
__device__ void integers(const ScaleArguments& arguments) {
  each<T>(arguments, [&](T x) { return static_cast<T>(uint64_t{x} * arguments.ranks); });
}
template <class T>
__device__ void reals(const ScaleArguments& arguments) {
  each<T>(arguments, [&](T x) {
    return static_cast<T>(static_cast<double>(x) * static_cast<double>(arguments.ranks));
  });
}
template <class T, class Format>
__device__ void coded(const ScaleArguments& arguments) {
  each<T>(arguments, [&](T x) {
    return Format::code(Format::real(x) * static_cast<double>(arguments.ranks));
  });
}

}  // namespace

extern "C" __global__ void prism_scale(const ScaleArguments arguments) {
  switch (arguments.dtype) {  // a signed integer wraps as the unsigned one of its width
    case 0:                   // int8
    case 1:                   // uint8
      return integers<uint8_t>(arguments);
    case 2:  // int32
    case 3:  // uint32
      return integers<uint32_t>(arguments);
    case 4:  // int64
    case 5:  // uint64
      return integers<uint64_t>(arguments);
    case 6:
      return coded<__half, Half>(arguments);
    case 7:
      return reals<float>(arguments);
    case 8:
      return reals<double>(arguments);
    case 9:
      return coded<__nv_bfloat16, Bfloat>(arguments);
    case 10:
      return coded<__nv_fp8_storage_t, Narrow<__NV_E4M3>>(arguments);
    case 11:
      return coded<__nv_fp8_storage_t, Narrow<__NV_E5M2>>(arguments);
    default:
      return;
  }
}
