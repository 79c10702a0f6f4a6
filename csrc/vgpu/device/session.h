// The virtual GPU of one rank process: what the stand-ins (cudart, cublas, ...) and the NCCL door
// share. One per process, made on first use; start() begins the recording of a rank.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/cluster.h"
#include "cost/device_profile.h"
#include "graph/graph.h"
#include "graph/op.h"

namespace prism::vgpu {

struct SessionOptions {
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  std::uint32_t device_count = 1;
  DeviceProfile device;
  ClusterProfile cluster;
  bool measure_host = false;  // host gaps from the clock instead of the profile
};

// A communicator the NCCL door made, before its members are known.
struct OpenCommunicator {
  std::uint32_t slot = 0;
  std::string name;
  std::uint32_t size = 0;
  std::uint32_t position = 0;
  std::string unique_id;  // 128 bytes, empty for a split
};

class Session {
 public:
  static Session& get();

  void start(const SessionOptions& options);
  const SessionOptions& options() const noexcept;
  // False before start(), after finish(), and on torch's watchdog and heartbeat threads.
  bool recording() const noexcept;

  // Device work, called by the stand-ins. `stream` is the CUDA stream handle (nullptr: default).
  void kernel(void* stream, std::string_view name, const KernelShape& shape);
  void copy(void* stream, std::int64_t bytes, CopyDirection direction, bool host_waits);
  void set(void* stream, std::int64_t bytes);

  // Communication, called by the NCCL door: the parts of one launch, in call order. Fills in host
  // time, stream and duration, and moves the clocks.
  std::uint32_t add_communicator(OpenCommunicator communicator);  // returns the slot
  void communicate(void* stream, std::span<Op> parts);

  // Byte-moving work in stream order; runs when the host looks at what it may have written.
  void enqueue(void* stream, std::function<void()> move);
  void drain(void* stream);
  void drain_all();
  // Bytes may be read and written here (device address of the virtual GPU, or host memory).
  bool is_device(const void* address) const noexcept;
  // Payloads up to this many bytes really move.
  static constexpr std::int64_t real_bytes_limit = 1 << 20;

  // A call the stand-ins do not implement: counted, named in the report.
  void note_unimplemented(std::string_view library, std::string_view function);

  // The end of a rank.
  std::vector<OpenCommunicator> communicators() const;
  void set_members(std::uint32_t slot, std::span<const std::uint32_t> members);
  void set_call_sites(
      std::span<const std::string> sites);  // in the order of communication launches
  void mark(MarkKind kind, std::string_view label);
  std::uint32_t num_iterations() const noexcept;
  std::string report() const;  // JSON: unimplemented calls, unknown kernels, device-to-host reads
                               // and the rule that answered
  Graph finish(const MemoryPeaks& peaks, std::string_view metadata);

 private:
  Session();
  ~Session() = delete;  // lives as long as the process
  struct Impl;
  Impl* impl_;
};

}  // namespace prism::vgpu
