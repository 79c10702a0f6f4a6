// What our kernels are given: one struct each, by value, read by nvcc and by the host's compiler.
#pragma once

#include <stdint.h>

namespace prism::device {

constexpr uint64_t no_deadline_ns = UINT64_MAX;

// prism_pace: every block runs until the deadline by %globaltimer, or until the flag says so.
struct PaceArguments {
  uint64_t deadline_ns = no_deadline_ns;
  uint64_t duration_ns =
      no_deadline_ns;              // from the start of each block; the earlier of both counts
  const uint32_t* flag = nullptr;  // mapped; ends when (int32_t)(*flag - until) >= 0
  uint32_t until = 0;
  uint32_t zero = 0;
  unsigned char* load = nullptr;  // device memory that is read and written meanwhile; nullptr: none
  uint64_t load_bytes = 0;        // of it, 16 for each thread at least
  uint64_t bytes_per_second = 0;  // of each block, read and written together
  uint64_t* ended_ns = nullptr;   // mapped; block 0's end; nullptr: not wanted
};

// prism_stamp: %globaltimer into a mapped word.
struct StampArguments {
  uint64_t* time_ns = nullptr;
};

// prism_copy: bytes from one place to another, by as many blocks as are launched.
struct CopyArguments {
  const unsigned char* from = nullptr;
  unsigned char* to = nullptr;
  uint64_t bytes = 0;
};

// prism_scale: to = ranks * from, by NCCL's data type. The same memory or disjoint.
struct ScaleArguments {
  const void* from = nullptr;
  void* to = nullptr;
  uint64_t count = 0;  // elements
  int32_t dtype = 0;   // as ncclDataType_t numbers them
  uint32_t ranks = 1;
};

// prism_fill: `to` is filled with `from`, over and over; with zeros where from_bytes is 0.
struct FillArguments {
  const unsigned char* from = nullptr;
  unsigned char* to = nullptr;
  uint64_t from_bytes = 0;
  uint64_t to_bytes = 0;
};

}  // namespace prism::device
