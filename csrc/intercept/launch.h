// From checked NCCL calls to launches. A call outside a group is a launch of its own; the calls of
// a group become one launch per (communicator, stream), in the order in which each pair was first
// used, when the outermost group ends. (NCCL: one launch per communicator, which waits for all
// streams the group named for it; here each stream keeps its own calls.)
#pragma once

#include <cstdint>

#include "graph/op.h"
#include "intercept/communicator.h"
#include "intercept/contract.h"
#include "vgpu/abi/nccl.h"

namespace prism::intercept {

enum class Effect : std::uint8_t {
  nothing,  // this rank receives nothing, or keeps what it has
  spread,   // fill `to` with `from`
  reduce,   // contract reduction of `from` into `to`
  send,     // pairs with a receive of the same launch if it is an all-to-all
  receive,
};

struct Call {
  CommunicatorPtr communicator;
  void* stream = nullptr;
  Op op;  // kind, dtype, detail, ref, peer, bytes
  Effect effect = Effect::nothing;
  bool moves = false;      // the payload is small enough to be real
  std::uint32_t peer = 0;  // send, receive: absolute position
  const void* from = nullptr;
  void* to = nullptr;
  std::int64_t from_bytes = 0;
  std::int64_t to_bytes = 0;
  UniformReduction reduction;
  // Of a collective, what the program gave, whatever this rank's part in it is: `in` and `out` are
  // of unit_bytes, or of as much for each member where the kind says so.
  const void* in = nullptr;
  void* out = nullptr;
  std::int64_t unit_bytes = 0;
  const void* device_scalar = nullptr;  // premul_sum with the scalar on the device
  int real_op = 0;                      // the reduction's number in the real NCCL
};

abi::nccl::Result submit(Call call);
// A call of an open group was refused: the group's end says so and launches nothing.
abi::nccl::Result refuse(abi::nccl::Result result) noexcept;

void group_start() noexcept;
abi::nccl::Result group_end();
// Ends the group without launching. `calls` says how many it held.
abi::nccl::Result group_discard(std::size_t& calls) noexcept;

}  // namespace prism::intercept
