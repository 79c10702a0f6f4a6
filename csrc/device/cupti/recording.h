// Records a rank that runs on a real GPU: CUPTI's records and what the doors note beside them, into
// the same graph of one rank that the virtual GPU makes. One per process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "device/cupti/join.h"
#include "device/cupti/rows.h"
#include "graph/graph.h"

namespace prism::device::cupti {

struct RecordingOptions {
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  // False: no CUPTI. Then what the doors note is all that is recorded: communication (its times by
  // reached()), blocks of the framework's allocator, marks.
  bool use_cupti = true;
  std::string library;  // path of CUPTI; empty: as Library finds it
  // What CUPTI writes into; it drops records, and counts them, where all are full.
  std::size_t buffers = 32;
  std::size_t buffer_bytes = std::size_t{2} << 20;
  bool gaps_as_callbacks = false;  // join.h
};

class Recording {
 public:
  static Recording& get();

  // Throws CuptiError; nothing is left enabled then. A recording that was started must be stopped
  // before another starts.
  void start(const RecordingOptions& options);
  bool active() const noexcept;
  std::uint32_t num_iterations() const noexcept;  // marks noted

  // For the doors; where nothing is recorded, they do nothing. Times are
  // ns of now(): CUPTI's clock, without CUPTI the steady one.
  std::uint64_t now() const noexcept;
  std::uint32_t add_communicator(std::string_view name, std::uint32_t size, std::uint32_t position);
  void set_members(std::uint32_t slot, std::span<const std::uint32_t> members);
  // As CUPTI names a stream, by the driver's handles. Throws CuptiError.
  StreamKey stream_key(void* context, void* stream) const;
  // A launch that the calling thread began at `begin` and has ended now: its parts in call order,
  // with the duration that was planned. Returns its number.
  std::uint64_t communicate(std::uint64_t begin, StreamKey stream, std::span<const Op> parts);
  // When the device came to a launch and when it ended, by events; CUPTI's times go before.
  void reached(std::uint64_t launch, std::uint64_t begin, std::uint64_t end);
  // Calls of the calling thread from `begin` until now are the door's own, not the program's.
  void own_calls(std::uint64_t begin);
  void block_allocated(std::int64_t bytes);
  void block_freed(std::int64_t bytes);
  void mark(MarkKind kind, std::string_view label);

  // Asks CUPTI for what is complete, on a thread of the recording's own: the caller does not wait.
  void flush();
  // What begins from here on is not recorded. The caller then waits for the device, and stops.
  void seal();
  // Ends the recording: takes what is left and disables all. Throws CuptiError, but does end.
  void stop();
  // After stop(). Call sites in the order of communication launches.
  Graph finish(const MemoryPeaks& peaks, std::span<const std::string> call_sites,
               std::string_view metadata);
  // JSON; after finish(): what was counted, what CUPTI lost, what times are worth.
  std::string report() const;

 private:
  Recording();
  ~Recording() = delete;  // lives as long as the process: CUPTI calls back
  struct Impl;
  Impl* impl_;
};

}  // namespace prism::device::cupti
