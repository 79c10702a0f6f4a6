// The virtual GPU of one rank process: what the stand-ins (cudart, cublas, ...) and the NCCL door
// share. One per process, made on first use; start() begins the recording of a rank. What the
// CUDA runtime and driver need beyond this (memory, streams, events) is runtime.h.
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
#include "engine/exchange.h"
#include "engine/port.h"
#include "graph/graph.h"
#include "graph/op.h"
#include "vgpu/device/company.h"
#include "vgpu/device/ranges.h"

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

// Tells a communicator's members (empty: not known). May take the interpreter's lock: it is
// called with none of the session's.
using MemberSource = std::function<std::vector<std::uint32_t>(const OpenCommunicator&)>;

class Session {
 public:
  static Session& get();

  void start(const SessionOptions& options);
  // What there is before start(), when nothing is recorded: torch keeps the number of devices that
  // it first sees, be it in a warm parent. Without this call, one H100.
  void describe(std::uint32_t device_count, const DeviceProfile& device);
  const SessionOptions& options() const noexcept;
  // False before start(), after finish(), and on torch's watchdog and heartbeat threads.
  bool recording() const noexcept;

  // Device work, called by the stand-ins. `stream` is the CUDA stream handle (nullptr: default).
  void kernel(void* stream, std::string_view name, const KernelShape& shape);
  // The same by the address that a registered kernel is launched by; false: not registered.
  // `arguments`: one address a parameter, as cudaLaunchKernel takes them; may be nullptr.
  bool launch(void* stream, const void* function, KernelShape shape, const void* const* arguments);
  void copy(void* stream, std::int64_t bytes, CopyDirection direction, bool host_waits);
  void set(void* stream, std::int64_t bytes);

  // Communication, called by the NCCL door: the parts of one launch, in call order. Fills in host
  // time, stream and duration, and moves the clocks. Returns the launch's number (0 where nothing
  // is recorded).
  std::uint32_t add_communicator(OpenCommunicator communicator);  // returns the slot
  std::uint64_t communicate(void* stream, std::span<Op> parts);

  // Byte-moving work in stream order; runs when the host looks at what it may have written.
  // `touches`: the device ranges it reads or writes, maybe none. Without: not known, so that a
  // block that is handed out meanwhile waits for it.
  void enqueue(void* stream, std::function<void()> move, std::vector<Range> touches);
  void enqueue(void* stream, std::function<void()> move);
  // Work with other ranks, in stream order: called until it lacks nothing, and again only where
  // something has come from one of them. It must not wait.
  void enqueue_step(void* stream, std::function<Lacks()> step, std::vector<Range> touches);
  // What is enqueued on `stream` from now on comes after all that is enqueued anywhere now.
  void follow_all(void* stream);
  void drain(void* stream);
  void drain_all();
  // Communicators are about to end: torch's watchdog, which ends with them, must see that all of
  // their work is complete.
  void end_watch();
  // Device memory was written, so that it no longer reads as zero.
  void note_written(const void* address, std::int64_t bytes);
  // The parts of it that do not read as zero for having never been written.
  std::vector<Range> written(const void* address, std::int64_t bytes) const;
  void clear(void* address, std::int64_t bytes);  // reads as zero
  // Values that a rule knows instead of kernels that compute nothing. Neither is an op, neither
  // takes time of the rank's.
  // In stream order, as if a kernel had written them there.
  void supply(void* stream, void* address, std::string_view bytes);
  // What the calling thread's device-to-host copies give: the answer that is as long as the copy,
  // whatever is there (memory that is used again may hold what an earlier owner wrote). Until the
  // next call; an empty list ends it.
  void answer_reads(std::vector<std::string> answers);
  // Bytes may be read and written here (device address of the virtual GPU, or host memory).
  bool is_device(const void* address) const noexcept;
  bool is_live(const void* address, std::int64_t bytes) const;  // all of it, in one block
  // Payloads up to this many bytes really move.
  static constexpr std::int64_t real_bytes_limit = 1 << 20;

  // A call the stand-ins do not implement: counted, named in the report.
  void note_unimplemented(std::string_view library, std::string_view function);

  // Asked once a communicator, at its first use, unless its members are set before.
  void set_member_source(MemberSource source);
  // From start() on, every op is posted there as number `number` of its ranks, and times come from
  // there: the process is a rank of an emulation. To be called before start().
  void attach(PortMemory memory, std::size_t number);
  // Bytes of communication go to and come from the other ranks that run. Before start() as well.
  void attach_exchange(ExchangeMemory memory, std::size_t number);
  Exchange* exchange() const noexcept;  // nullptr: none attached
  // The members of a communicator that run, once it was used; nullptr: none but this one.
  std::shared_ptr<const Company> company(std::uint32_t slot) const;
  // What comes from here on is posted no more: the rank failed, and its end is not its program's.
  // Waits for nothing. The calling thread waits for no work of the device any more: it may never be
  // done.
  void detach();

  // The end of a rank.
  std::vector<OpenCommunicator> communicators() const;
  void set_members(std::uint32_t slot, std::span<const std::uint32_t> members);
  void set_call_sites(
      std::span<const std::string> sites);  // in the order of communication launches
  void mark(MarkKind kind, std::string_view label);
  std::uint32_t num_iterations() const noexcept;
  std::string report() const;  // JSON: unimplemented calls, unknown kernels, device-to-host reads
                               // and the rule that answered, the last failed allocation
  // Ends the recording: what the process asks of the device from here on is answered only.
  void stop();
  // Peaks of the framework's allocator; device_bytes is filled in here.
  Graph finish(const MemoryPeaks& peaks, std::string_view metadata);

 private:
  friend class Runtime;
  Session();
  ~Session() = delete;  // lives as long as the process
  struct Impl;
  Impl* impl_;
};

}  // namespace prism::vgpu
