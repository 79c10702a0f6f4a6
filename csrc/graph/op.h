// One op: one thing a rank does. The record that every door writes (NCCL door, virtual GPU,
// imported traces, the builder) and that replay reads. Meaning on the clocks: docs/architecture.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace prism {

// Numbers are part of the file format: append, never renumber.
enum class OpKind : std::uint8_t {
  host_gap = 0,
  kernel = 1,
  copy = 2,
  set = 3,
  event_record = 4,
  event_wait = 5,
  stream_sync = 6,
  event_sync = 7,
  device_sync = 8,
  query = 9,
  host_callback = 10,
  graph_launch = 11,
  allocate = 12,  // framework allocator hands out a block
  free = 13,      // framework allocator takes it back
  reserve = 14,   // framework allocator grows by a device segment
  release = 15,   // framework allocator gives a device segment back
  mark = 16,
  // Communication ops: each closes a block (a grouped launch closes it with its last part).
  all_reduce = 32,
  all_gather = 33,
  reduce_scatter = 34,
  broadcast = 35,
  reduce = 36,
  all_to_all = 37,
  gather = 38,
  scatter = 39,
  send = 48,
  recv = 49,
};

enum class Provenance : std::uint8_t { unknown = 0, model = 1, table = 2, measured = 3 };

enum class DataType : std::uint8_t {  // numbered as NCCL numbers them
  int8 = 0,
  uint8 = 1,
  int32 = 2,
  uint32 = 3,
  int64 = 4,
  uint64 = 5,
  float16 = 6,
  float32 = 7,
  float64 = 8,
  bfloat16 = 9,
  float8e4m3 = 10,
  float8e5m2 = 11,
  none = 255,
};

enum class Reduction : std::uint8_t {
  sum = 0,
  prod = 1,
  max = 2,
  min = 3,
  avg = 4,
  premul_sum = 5
};
enum class CopyDirection : std::uint8_t {
  host_to_device = 0,
  device_to_host = 1,
  device_to_device = 2,
  host_to_host = 3
};
enum class MarkKind : std::uint8_t { iteration = 0, micro_batch = 1, phase = 2 };

struct Op {
  // flags
  static constexpr std::uint8_t provenance_mask = 0x3;  // Provenance of duration_ns
  static constexpr std::uint8_t group_continues =
      0x4;                                       // another part of the same grouped launch follows
  static constexpr std::uint8_t blocking = 0x8;  // host waits until the op is done

  OpKind kind = OpKind::host_gap;
  std::uint8_t flags = 0;
  DataType dtype = DataType::none;
  std::uint8_t detail = 0;  // Reduction | CopyDirection | MarkKind, by kind
  std::uint32_t ref =
      0;  // kernel: kernel id; communication: communicator slot of the rank; mark: string id
  std::uint16_t stream = 0;  // streams of a rank in order of first use; 0 is the default stream
  std::uint16_t event_stream =
      0;  // event_wait, event_sync, query of an event: stream it was recorded on
  std::uint32_t peer =
      0;  // send, recv: (peer - own position) mod size; rooted collectives: root position;
          // event_wait, event_sync: 1 = newest record on event_stream, 2 = the one before, ...
  std::uint32_t host_ns = 0;  // host time spent before the op takes effect (gap and call cost)
  std::uint32_t tag = 0;      // send, recv
  std::int64_t duration_ns =
      0;  // time on the stream (kernel, copy, communication) or on the host (host_gap)
  std::int64_t bytes =
      0;  // payload: larger of the send and receive buffer of this rank; memory ops: size

  Provenance provenance() const noexcept {
    return static_cast<Provenance>(flags & provenance_mask);
  }
  bool continues() const noexcept { return (flags & group_continues) != 0; }
  bool is_blocking() const noexcept { return (flags & blocking) != 0; }
  friend bool operator==(const Op&, const Op&) = default;
};

static_assert(sizeof(Op) == 40 && std::has_unique_object_representations_v<Op>);

constexpr bool is_communication(OpKind kind) noexcept { return kind >= OpKind::all_reduce; }
constexpr bool is_point_to_point(OpKind kind) noexcept {
  return kind == OpKind::send || kind == OpKind::recv;
}
constexpr bool is_host_sync(OpKind kind) noexcept {
  return kind >= OpKind::stream_sync && kind <= OpKind::device_sync;
}
// Kinds that may end a block inside a program; its last block may end with any.
constexpr bool may_end_block(OpKind kind) noexcept {
  return is_communication(kind) || is_host_sync(kind);
}
// True for the last part of a communication launch, which ends a block.
constexpr bool closes_block(const Op& op) noexcept {
  return is_communication(op.kind) && (op.flags & Op::group_continues) == 0;
}
// A block ends with a communication launch. A long one ends at a host synchronisation too, so that
// loops which read values back one by one (object gathers over a large world) repeat as blocks.
inline constexpr std::size_t long_block_ops = 256;
constexpr bool ends_block(const Op& op, std::size_t block_ops) noexcept {
  return closes_block(op) || (block_ops >= long_block_ops && is_host_sync(op.kind));
}

std::string_view name(OpKind kind) noexcept;  // "all_reduce", ...
std::string_view name(Provenance provenance) noexcept;
std::string_view name(DataType dtype) noexcept;
std::size_t size_of(DataType dtype) noexcept;  // bytes; 1 for none

}  // namespace prism
