// What is kept of CUPTI's records, and what the program's side notes beside them. Times of rows are
// CUPTI's, ns.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "device/cupti/abi.h"
#include "device/cupti/calls.h"
#include "graph/kernel.h"
#include "graph/op.h"

namespace prism::device::cupti {

// A stream as CUPTI names it.
struct StreamKey {
  std::uint32_t context = 0;
  std::uint32_t stream = 0;
  std::uint64_t value() const noexcept { return std::uint64_t{context} << 32 | stream; }
  friend bool operator==(const StreamKey&, const StreamKey&) = default;
};

struct ApiRow {
  std::uint64_t start = 0, end = 0;
  std::uint32_t thread = 0;
  std::uint32_t correlation = 0;
  std::uint32_t result = 0;
  CallRole role = CallRole::none;
  CallSide side = CallSide::runtime;
};

struct WorkRow {  // a kernel, copy or set
  std::uint64_t start = 0, end = 0;
  StreamKey stream;
  std::uint32_t correlation = 0;
  std::uint32_t kernel = 0;  // into Rows::kernels
  std::int64_t bytes = 0;
  OpKind kind = OpKind::kernel;
  CopyDirection direction = CopyDirection::host_to_device;
  bool pageable = false;  // one side of a copy is
  bool of_graph = false;
};

struct SyncRow {
  std::uint32_t correlation = 0;
  StreamKey stream;  // that is told to wait, or that the host waits for
  std::uint64_t event_sync = 0;
  abi::SyncType type{};
};

struct EventRow {
  std::uint32_t correlation = 0;
  StreamKey stream;
  std::uint64_t event_sync = 0;
};

struct StreamRow {
  std::uint32_t correlation = 0;
  StreamKey stream;
  abi::StreamFlag flag{};
};

struct MemoryRow {
  std::uint32_t correlation = 0;
  std::int64_t bytes = 0;
  bool release = false;
};

struct KernelRow {
  std::string name;  // mangled, as CUPTI gives it
  KernelShape shape;
};

struct Rows {
  std::vector<ApiRow> calls;
  std::vector<WorkRow> work;
  std::vector<SyncRow> syncs;
  std::vector<EventRow> events;
  std::vector<StreamRow> streams;
  std::vector<MemoryRow> memory;
  std::vector<KernelRow> kernels;
  std::uint64_t unknown_records = 0;  // of kinds that were not asked for
  std::uint64_t damaged_buffers = 0;  // that end in a record that is not whole
  std::uint64_t without_times = 0;    // device work that CUPTI could not time
};

// What the program's side notes.
struct Note {
  // own: calls of the door or of NCCL inside are not the program's, as those inside a launch.
  enum class Kind : std::uint8_t { communicate, allocate, free, mark, own };
  Kind kind = Kind::mark;
  MarkKind mark = MarkKind::iteration;
  std::uint32_t thread = 0;
  std::uint64_t begin = 0, end = 0;                // CUPTI's clock
  StreamKey stream;                                // of a launch of communication
  std::uint32_t first = 0, count = 0;              // its parts, in Notes::parts
  std::uint64_t device_begin = 0, device_end = 0;  // of a launch, by events; 0: not told
  std::int64_t bytes = 0;
  std::uint32_t label = 0;  // of a mark, in Notes::labels
};

struct Notes {
  std::vector<Note> notes;
  std::vector<Op> parts;  // duration_ns: what was planned, if anything
  std::vector<std::string> labels;
};

}  // namespace prism::device::cupti
