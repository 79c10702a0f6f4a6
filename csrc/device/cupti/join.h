// Rows and notes as the ops of a rank: calls in host order, each with the device work that it
// launched, by the clocks of docs/architecture.md. Replayed, every op ends when it was measured to.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "device/cupti/rows.h"
#include "graph/recorder.h"

namespace prism::device::cupti {

struct JoinOptions {
  std::uint64_t origin = 0;                 // when the rank's host clock is 0
  std::uint64_t end = UINT64_MAX;           // calls and notes that begin later are not recorded
  std::optional<StreamKey> default_stream;  // nothing: the one that CUPTI tells of as null stream
  // Calls of other threads are not the program's. Empty: all are.
  std::function<bool(std::uint32_t)> is_program_thread;
  // Time on a stream between when an op could begin and when it began (launch latency, work that
  // was not recorded): part of the op, or a host callback before it.
  bool gaps_as_callbacks = false;
};

struct JoinCounts {
  std::uint64_t kernels = 0, copies = 0, sets = 0, launches_of_communication = 0;
  std::uint64_t orphans = 0;       // device work whose call was not recorded: placed by its begin
  std::uint64_t lost_work = 0;     // launches and copies whose device work was not recorded
  std::uint64_t untimed = 0;       // device work that CUPTI had no times of
  std::uint64_t untold_syncs = 0;  // waits, records and queries without a word of what
  std::uint64_t guessed_callbacks = 0;  // host callbacks: on the thread's last stream
  std::uint64_t other_threads = 0;      // calls of threads that are not the program's
  std::uint64_t inside_launches = 0;    // calls and work of NCCL or of the door
  std::uint64_t failed_calls = 0;
  std::int64_t gap_ns = 0;    // summed
  std::int64_t early_ns = 0;  // summed: begun before the clocks say that they could
};

// Appends to `recorder`, to which the communicators of the notes' ops are known. Throws CuptiError
// where a rank has more streams than a graph holds.
JoinCounts join(const Rows& rows, const Notes& notes, const JoinOptions& options,
                Recorder& recorder);

}  // namespace prism::device::cupti
