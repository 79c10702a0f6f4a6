#include "vgpu/device/session.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "vgpu/device/impl.h"

namespace prism::vgpu {
namespace {

// Kernel-visible names are cut at 15 characters; torch names its watchdog, heartbeat and
// on-completion threads pt_nccl_*, and the thread that pins a loader's batches pt_data_pin.
bool named_as_program_thread() noexcept {
  char name[16] = {};
  if (pthread_getname_np(pthread_self(), name, sizeof name) != 0) return true;
  return std::strncmp(name, "pt_nccl_", 8) != 0 && std::strncmp(name, "pt_data_pin", 11) != 0;
}

}  // namespace

bool is_program_thread() noexcept {
  thread_local const bool answer = named_as_program_thread();
  return answer && !in_move();
}

DeviceProfile default_device() {
  // Facts of the device that CUDA itself reports on an H100 SXM5 80 GB; costs come with start().
  DeviceProfile device;
  device.name = "NVIDIA H100 80GB HBM3";
  device.memory_bytes = std::int64_t{80} << 30;
  device.sms = 132;
  device.compute_major = 9;
  device.l2_bytes = std::int64_t{50} << 20;
  device.shared_per_block_optin = 227 << 10;
  device.shared_per_sm = 228 << 10;
  device.clock_khz = 1980000;
  device.memory_clock_khz = 2619000;
  device.memory_bus_bits = 5120;
  return device;
}

Session::Impl::Impl() {
  default_stream.magic = Stream::alive;
  options.device = default_device();
  static Impl* forked = nullptr;
  forked = this;
  pthread_atfork([] { forked->mutex.state.lock(); }, [] { forked->mutex.state.unlock(); },
                 [] { forked->begin_child(); });
}

void Session::Impl::begin_child() {
  // Locks are free, whatever threads of the parent held; one that knows its owner could not be
  // released here, where the thread has another id.
  new (&mutex) SessionMutex;
  new (&watchdog_saw) std::condition_variable_any;
  new (&move_made) std::condition_variable;
  mover = {};
  if (exchange == nullptr) return;
  // A process that the program of a rank started: it has no device, and is not the rank.
  wait_for_no_move();
  if (port != nullptr) port->abandon();
}

Session::Session() : impl_(new Impl) {}

Session& Session::get() {
  static auto* session = new Session;
  return *session;
}

void Session::describe(std::uint32_t device_count, const DeviceProfile& device) {
  const std::lock_guard lock(impl_->mutex);
  impl_->options.device_count = device_count;
  impl_->options.device = device;
}

void Session::start(const SessionOptions& options) {
  Impl& impl = *impl_;
  impl.drain_everything();
  const std::lock_guard lock(impl.mutex);
  impl.options = options;
  impl.recorder = std::make_unique<Recorder>(options.rank, options.world_size);
  impl.clock = RankClock();
  impl.frees.clear();
  impl.records.assign(1, 0);
  impl.next_stream = 1;
  impl.free_indices.clear();
  impl.default_stream.index = 0;
  impl.streams.for_each([](Stream& stream) { stream.index = Stream::unused; });
  impl.events.for_each([](Event& event) { event.recorded = false; });
  impl.watchdog.begin();
  impl.kernels = KernelTable();
  impl.kernel_identities.clear();
  impl.communicators.clear();
  impl.communicator_bytes = 0;
  impl.peak_device_bytes = impl.held(0);
  impl.failed = {};
  impl.unimplemented.clear();
  std::fill(std::begin(impl.reads), std::end(impl.reads), ReadCount{});
  impl.last = std::chrono::steady_clock::now();
  impl.active = true;
}

const SessionOptions& Session::options() const noexcept { return impl_->options; }
bool Session::recording() const noexcept { return impl_->recording(); }

void Session::Impl::assign_index(Stream& stream) {
  // Indices of destroyed streams are taken again only where the numbers would run out.
  constexpr std::uint16_t plenty = 4096;
  if (next_stream >= plenty && !free_indices.empty()) {
    stream.index = free_indices.back();
    free_indices.pop_back();
    return;
  }
  PRISM_CHECK(next_stream < Stream::unused);
  stream.index = next_stream++;
  records.resize(std::size_t{stream.index} + 1, 0);
  clock.ensure(stream.index);
}

std::uint32_t Session::Impl::host_time(OpKind kind) {
  if (!options.measure_host) return host_cost_ns(kind, options.device.host);
  const auto since =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - last)
          .count();
  if (since <= INT64_C(0xffffffff)) return static_cast<std::uint32_t>(since);
  Op gap;  // longer than an op's own field holds
  gap.duration_ns = since;
  clock.spend(since);
  append(gap);
  return 0;
}

void Session::Impl::call(OpKind kind, std::uint16_t stream) {
  Op op;
  op.kind = kind;
  op.stream = stream;
  begin(op);
  end(op);
}

void Session::mark(MarkKind kind, std::string_view label) {
  Impl& impl = *impl_;
  const std::lock_guard lock(impl.mutex);
  if (!impl.active) return;
  Op op;
  op.kind = OpKind::mark;
  op.detail = static_cast<std::uint8_t>(kind);
  op.ref = impl.recorder->string(label);
  impl.begin(op);
  impl.end(op);
}

std::uint32_t Session::num_iterations() const noexcept {
  const std::lock_guard lock(impl_->mutex);
  return impl_->recorder ? impl_->recorder->num_iterations() : 0;
}

void Session::note_unimplemented(std::string_view library, std::string_view function) {
  const std::lock_guard lock(impl_->mutex);
  ++impl_->unimplemented[{std::string(library), std::string(function)}];
}

std::vector<OpenCommunicator> Session::communicators() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<OpenCommunicator> open;
  for (const Communicator& communicator : impl_->communicators) open.push_back(communicator.open);
  return open;
}

void Session::set_member_source(MemberSource source) {
  const std::lock_guard lock(impl_->mutex);
  impl_->member_source = std::move(source);
}

void Session::set_call_sites(std::span<const std::string> sites) {
  const std::lock_guard lock(impl_->mutex);
  PRISM_CHECK(impl_->recorder != nullptr);
  std::vector<std::uint32_t> strings;
  strings.reserve(sites.size());
  for (const std::string& site : sites) strings.push_back(impl_->recorder->string(site));
  impl_->recorder->set_call_sites(strings);
}

void Session::end_watch() {
  const std::lock_guard lock(impl_->mutex);
  impl_->watchdog.show_all();
  impl_->watchdog_saw.notify_all();
}

void Session::stop() {
  if (impl_->exchange != nullptr) {
    // Bytes that never come would keep the engine from hearing that this rank has ended.
    const SessionMutex::Whole lock(impl_->mutex);
    impl_->post_end();
    impl_->active = false;
  }
  impl_->drain_everything();
  impl_->leave_no_bytes();
  const SessionMutex::Whole lock(impl_->mutex);
  impl_->post_end();
  impl_->active = false;
}

Graph Session::finish(const MemoryPeaks& peaks, std::string_view metadata) {
  Impl& impl = *impl_;
  impl.drain_everything();
  const SessionMutex::Whole lock(impl.mutex);
  PRISM_CHECK(impl.recorder != nullptr);
  impl.post_end();
  impl.active = false;
  MemoryPeaks all = peaks;
  all.device_bytes = impl.peak_device_bytes;
  if (!impl.frees.empty()) impl.append_frees();
  impl.recorder->set_peaks(all);
  for (std::size_t slot = 0; slot < impl.communicators.size(); ++slot) {
    const auto& members = impl.communicators[slot].members;
    if (!members.empty()) {
      impl.recorder->set_members(static_cast<std::uint32_t>(slot), members);
    }
  }
  Graph graph = impl.recorder->finish(metadata);
  impl.recorder.reset();
  return graph;
}

}  // namespace prism::vgpu
