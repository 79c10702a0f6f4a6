// State of the virtual GPU, shared by session.cc, work.cc, runtime.cc and values.cc alone.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/comm.h"
#include "engine/exchange.h"
#include "engine/port.h"
#include "engine/rank_clock.h"
#include "graph/recorder.h"
#include "vgpu/device/company.h"
#include "vgpu/device/kernels.h"
#include "vgpu/device/locks.h"
#include "vgpu/device/memory.h"
#include "vgpu/device/runtime.h"
#include "vgpu/device/session.h"
#include "vgpu/device/stream.h"
#include "vgpu/device/watchdog.h"

namespace prism::vgpu {

// False on the threads that torch's process group runs beside the program's own: they poll, at
// times that no two runs share. And in a move.
bool is_program_thread() noexcept;
// The calling thread waits for no move any more: it has left (Session::detach), or has no device.
bool has_left() noexcept;
void wait_for_no_move() noexcept;
DeviceProfile default_device();

// Where the answer to a device-to-host read came from.
enum class ReadRule : std::uint8_t { written, zero, large, supplied };
struct ReadCount {
  std::uint64_t reads = 0;
  std::int64_t bytes = 0;
};

// Of Session::answer_reads on the calling thread; nullptr: none of this length.
const std::string* answer_for(std::int64_t bytes) noexcept;

struct Communicator {
  OpenCommunicator open;
  std::vector<std::uint32_t> members;
  CommShape shape;
  bool ready = false;                      // shape is known
  bool guessed = false;                    // members are not: taken as consecutive ranks
  std::uint64_t identity = 0;              // for the engine of an emulation
  std::shared_ptr<const Company> company;  // nullptr: no other member runs
};

struct FailedAllocation {
  std::int64_t asked_bytes = 0, held_bytes = 0, free_bytes = 0;
  std::uint64_t op = 0;
  std::uint64_t count = 0;
};

struct Session::Impl {
  Impl();
  void begin_child();  // of a fork

  mutable SessionMutex mutex;
  std::atomic<bool> active{false};
  SessionOptions options;

  std::unique_ptr<Recorder> recorder;
  RankClock clock;
  std::vector<std::uint32_t> records;  // event records by stream index
  std::uint16_t next_stream = 1;
  std::vector<std::uint16_t> free_indices;
  std::chrono::steady_clock::time_point last;

  Stream default_stream;
  std::uint32_t num_blocking = 0;  // streams that were made without the non-blocking flag
  HandleTable<Stream> streams;
  HandleTable<Event> events;
  WatchdogView watchdog;
  std::condition_variable_any watchdog_saw;
  KernelTable kernels;

  DeviceMemory memory;
  PinnedMemory pinned;
  std::vector<std::int64_t> used_bytes;  // by device
  std::int64_t communicator_bytes = 0;
  std::int64_t peak_device_bytes = 0;
  FailedAllocation failed;

  std::uint64_t launches_of_communication = 0;
  std::vector<Communicator> communicators;
  MemberSource member_source;
  // Set in an emulation: the engine, not `clock`, knows the times of this rank.
  std::unique_ptr<Port> port;
  // Set where other ranks run too. Then moves may wait for them, and a thread of its own alone runs
  // what is queued, as a device does.
  std::unique_ptr<Exchange> exchange;
  std::vector<std::uint64_t> kernel_identities;  // by id of the recorder
  std::map<std::pair<std::string, std::string>, std::uint64_t> unimplemented;
  ReadCount reads[4];

  bool recording() const noexcept {
    return active.load(std::memory_order_relaxed) && is_program_thread();
  }

  // Handles. nullptr and the two small numbers that the runtime reserves: the default stream.
  Stream* find_stream(void* handle) noexcept {
    if (reinterpret_cast<std::uintptr_t>(handle) <= 2) return &default_stream;
    return HandleTable<Stream>::find(handle);
  }
  std::uint16_t index_of(Stream& stream) {
    if (stream.index == Stream::unused) assign_index(stream);
    return stream.index;
  }
  void assign_index(Stream& stream);
  // Before an operation on `stream`: the default stream follows every blocking stream's work,
  // and they follow its (CUDA runtime, "legacy default stream").
  void order_default(Stream& stream) {
    ++stream.work;
    if (num_blocking != 0) order_blocking(stream);
  }
  void order_blocking(Stream& stream);
  void follow(Stream& stream, Stream& before);

  // Host time of a call: the profile's, or what the program took since the last one.
  std::uint32_t host_time(OpKind kind);
  void begin(Op& op) {
    op.host_ns = host_time(op.kind);
    clock.spend(op.host_ns);
  }
  // Every op of the rank passes here, in order. Returns what the engine told, if it was asked.
  std::int64_t append(const Op& op, Ask ask = Ask::nothing) {
    if (!frees.empty()) append_frees();
    recorder->append(op);
    return port == nullptr ? 0 : post(op, ask);
  }
  std::int64_t post(const Op& op, Ask ask);
  void post_end();
  // `costs`: a query of the program, which takes host time; false: one that another call makes.
  std::int64_t query(const Event& event, Ask ask, bool costs);
  // Whether what ends at `time` is done for the host; `told`: what the engine said, if it was
  // asked.
  bool is_done(std::int64_t time, std::int64_t told) const noexcept {
    return port != nullptr ? told != 0 : clock.is_done(time);
  }
  // An op after which the host waits for the device waits for the engine's word in an emulation.
  void end(const Op& op) {
    const bool waits = is_host_sync(op.kind) || (op.is_blocking() && !op.continues());
    append(op, waits ? Ask::host_time : Ask::nothing);
    if (options.measure_host) last = std::chrono::steady_clock::now();
  }
  // A kernel, copy or set.
  void run(Op& op) {
    begin(op);
    clock.run(op.stream, op.duration_ns);
    if (op.is_blocking()) clock.sync_stream(op.stream);
    end(op);
  }
  // A call with no stream work of its own.
  void call(OpKind kind, std::uint16_t stream);
  // A synchronise: what `wait` does to the clock comes after the call's cost.
  template <class F>
  void clock_call(OpKind kind, std::uint16_t stream, F&& wait) {
    call(kind, stream);
    wait();
  }

  // Blocks freed with nothing between them are freed at one moment, in an order that may come from
  // their addresses (torch clears tables keyed by them): they are recorded by size.
  std::vector<std::int64_t> frees;
  void append_frees();
  void memory_op(OpKind kind, std::int64_t bytes);
  void run_kernel(Stream& stream, KernelInfo& kernel);
  KernelInfo make_kernel(std::string_view name, const KernelShape& shape);
  void know_members(Communicator& communicator);
  std::int64_t duration_of(const Op& op);

  // Queues. `lock` holds `mutex.state`, and nothing else of locks.h is held.
  using StateLock = std::unique_lock<std::mutex>;
  // Runs the moves of `stream` up to that one, or waits for whoever does. In a move: those that do
  // not come behind it.
  void drain_until(Stream& stream, std::uint64_t move, StateLock& lock);
  void await(Stream& stream, std::uint64_t move, StateLock& lock);
  // By the thread that is the mover.
  void run_until(Stream& stream, std::uint64_t move, StateLock& lock);
  void step_until(Stream& stream, std::uint64_t move, StateLock& lock);
  void run_first(Stream& stream, StateLock& lock);
  void pop(Stream& stream);
  // That live now, the default stream aside: queues are looked at while more may be made.
  std::vector<Stream*> all_streams();
  // What need not wait, on all streams; false: nothing.
  bool move_on(StateLock& lock);
  bool move_on(Stream& stream, StateLock& lock);
  void run_device();      // a thread's whole life
  void leave_no_bytes();  // holds neither: all that others are to get is on its way
  std::shared_ptr<const Company> company_of(const Communicator& communicator) const;
  void drain_stream(Stream& stream);     // holds neither
  void drain_everything();               // holds neither
  void drain_event(const Event& event);  // holds neither
  // The end event of a launch is about to be recorded, after which torch drops what its watchdog
  // has seen the end of.
  void let_watchdog_look(std::unique_lock<SessionMutex>& lock);
  Outcome answer_watchdog(Event& event);
  // After what is queued and touches the range, before what its next owner does.
  void zero_in_order(Range range);  // holds neither
  void push(Stream& stream, Move move);
  void push(void* stream, Move move);  // by handle; holds neither
  std::uint64_t pending = 0;           // moves in all queues
  // The thread that runs moves; none: whoever looks may. By `mutex.state`.
  std::thread::id mover{};
  std::condition_variable move_made;  // or the mover has ended
  // detach() was called: no move begins any more. Whoever waits for one does so to the end of the
  // process, so that the program does not go on with bytes that are not there.
  std::atomic<bool> left{false};
  // Behind what is in the stream. `mutex` is held.
  void move_in_order(Stream& stream, std::function<void(Impl&)> move, std::vector<Range> touches);

  // Values. `mutex.state` is held.
  void move_bytes(void* to, const void* from, std::int64_t bytes, bool small);
  void move_rows(void* to, const void* from, std::int64_t width, std::int64_t rows,
                 std::int64_t to_pitch, std::int64_t from_pitch);
  void fill(void* to, std::uint32_t pattern, std::int32_t pattern_bytes, std::int64_t bytes);
  void count_read(const void* from, std::int64_t bytes, bool supplied);

  std::int64_t& used(std::int32_t device);
  std::int64_t held(std::int32_t device) {
    return options.device.context_bytes + communicator_bytes + used(device);
  }
  bool take(std::int64_t bytes, std::int64_t asked, std::int32_t device);
};

}  // namespace prism::vgpu
