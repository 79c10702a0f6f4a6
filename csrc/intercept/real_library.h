// The NCCL that stands behind the door, for communicators whose members all run. The process has it
// loaded beside the door (facts of NCCL 2.30.7: every ncclX has a twin pncclX, which nothing stands
// before); it is found there by dlopen, and never linked.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "vgpu/abi/nccl.h"

namespace prism::intercept {

// What the door calls, by name without its prefix: (name, whether every version from 2.19 on has
// it, result, arguments). A communicator is a void*, data types and reductions are numbers. A
// configuration goes through as the caller made it.
#define PRISM_REAL_NCCL(X)                                                               \
  X(GetUniqueId, true, int, (abi::nccl::UniqueId*))                                      \
  X(GetLastError, true, const char*, (void*))                                            \
  X(CommInitRankConfig, true, int, (void**, int, abi::nccl::UniqueId, int, const void*)) \
  X(CommInitRankScalable, false, int,                                                    \
    (void**, int, int, int, const abi::nccl::UniqueId*, const void*))                    \
  X(CommSplit, true, int, (void*, int, int, void**, const void*))                        \
  X(CommFinalize, true, int, (void*))                                                    \
  X(CommRevoke, false, int, (void*, int))                                                \
  X(CommSuspend, false, int, (void*, int))                                               \
  X(CommResume, false, int, (void*))                                                     \
  X(CommDestroy, true, int, (void*))                                                     \
  X(CommAbort, true, int, (void*))                                                       \
  X(CommGetAsyncError, true, int, (void*, int*))                                         \
  X(CommRegister, false, int, (void*, void*, std::size_t, void**))                       \
  X(CommDeregister, false, int, (void*, void*))                                          \
  X(RedOpCreatePreMulSum, true, int, (int*, const void*, int, int, void*))               \
  X(RedOpDestroy, true, int, (int, void*))                                               \
  X(GroupStart, true, int, ())                                                           \
  X(GroupEnd, true, int, ())                                                             \
  X(AllReduce, true, int, (const void*, void*, std::size_t, int, int, void*, void*))     \
  X(Reduce, true, int, (const void*, void*, std::size_t, int, int, int, void*, void*))   \
  X(ReduceScatter, true, int, (const void*, void*, std::size_t, int, int, void*, void*)) \
  X(AllGather, true, int, (const void*, void*, std::size_t, int, void*, void*))          \
  X(AlltoAll, false, int, (const void*, void*, std::size_t, int, void*, void*))          \
  X(Gather, false, int, (const void*, void*, std::size_t, int, int, void*, void*))       \
  X(Scatter, false, int, (const void*, void*, std::size_t, int, int, void*, void*))      \
  X(Broadcast, true, int, (const void*, void*, std::size_t, int, int, void*, void*))     \
  X(Send, true, int, (const void*, std::size_t, int, int, void*, void*))                 \
  X(Recv, true, int, (void*, std::size_t, int, int, void*, void*))

class RealLibrary {
 public:
  // path: nullptr takes the libnccl.so.2 that the process has loaded.
  // Raises NcclError where there is none, or where it lacks a name that every version has. Others
  // are nullptr where it lacks them.
  static std::unique_ptr<const RealLibrary> open(const char* path = nullptr);

  ~RealLibrary();
  RealLibrary(const RealLibrary&) = delete;
  RealLibrary& operator=(const RealLibrary&) = delete;

#define PRISM_REAL_NCCL_FIELD(name, needed, result, arguments) result(*name) arguments = nullptr;
  PRISM_REAL_NCCL(PRISM_REAL_NCCL_FIELD)
#undef PRISM_REAL_NCCL_FIELD

 private:
  explicit RealLibrary(void* handle) noexcept : handle_(handle) {}
  void* handle_;
};

}  // namespace prism::intercept
