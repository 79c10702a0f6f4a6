#include "device/cupti/recording.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "device/cupti/buffers.h"
#include "device/cupti/decode.h"
#include "device/cupti/host_clock.h"
#include "device/cupti/library.h"
#include "device/cupti/recording_report.h"
#include "device/cupti/thread_names.h"

namespace prism::device::cupti {
namespace {

constexpr abi::Kind kinds[] = {
    abi::Kind::concurrent_kernel, abi::Kind::memcpy,     abi::Kind::peer_memcpy, abi::Kind::memset,
    abi::Kind::synchronization,   abi::Kind::cuda_event, abi::Kind::stream,      abi::Kind::memory};

std::uint32_t this_thread() noexcept {
  thread_local const auto id = static_cast<std::uint32_t>(syscall(SYS_gettid));
  return id;
}

struct Communicator {
  std::string name;
  std::uint32_t size = 0, position = 0;
  std::vector<std::uint32_t> members;
};

}  // namespace

struct Recording::Impl {
  std::atomic<bool> active{false};
  std::atomic<std::uint32_t> iterations{0};
  RecordingOptions options;

  // CUPTI, once it was found. Pools stay for good: it may still hold buffers of an earlier one.
  std::unique_ptr<Library> library;
  std::vector<std::unique_ptr<BufferPool>> pools;
  std::atomic<BufferPool*> pool{nullptr};
  std::size_t num_enabled_kinds = 0, num_enabled_calls = 0;

  std::mutex notes_mutex;
  Notes notes;
  std::uint64_t last_note = 0;
  std::vector<std::uint32_t> launches;  // notes of communication
  std::vector<Communicator> communicators;
  std::uint64_t started = 0, sealed = UINT64_MAX;

  // What the reading thread does, and flush() and stop().
  std::mutex rows_mutex;
  std::optional<Decoder> decoder;
  ThreadNames threads;
  HostClock clock;
  std::exception_ptr failure;
  std::uint64_t dropped = 0;

  std::mutex wake_mutex;
  std::condition_variable wake;
  bool ends = false, wants_flush = false, has_buffers = false;
  std::thread reader;

  RecordingCounts counts;

  static void requested(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records);
  static void completed(void* context, std::uint32_t stream, std::uint8_t* buffer, std::size_t size,
                        std::size_t valid);
  void make_pool(const RecordingOptions& wanted);
  void enable();
  void disable();
  void read_all();
  void read_until_end();
  void note(Note note);
  void end_reader();
};

Recording::Recording() : impl_(new Impl) {
  static Impl* forked = nullptr;
  forked = impl_;
  // The device is the parent's.
  pthread_atfork(nullptr, nullptr, [] { forked->active = false; });
}

Recording& Recording::get() {
  static auto* recording = new Recording;
  return *recording;
}

std::uint64_t Recording::now() const noexcept {
  const bool cupti = impl_->options.use_cupti && impl_->library != nullptr;
  return cupti ? impl_->library->timestamp_or_zero() : steady_now();
}
bool Recording::active() const noexcept { return impl_->active.load(std::memory_order_relaxed); }
std::uint32_t Recording::num_iterations() const noexcept { return impl_->iterations; }

void Recording::Impl::requested(std::uint8_t** buffer, std::size_t* size,
                                std::size_t* max_records) {
  BufferPool* pool = get().impl_->pool;
  *buffer = pool == nullptr ? nullptr : pool->request();
  *size = *buffer == nullptr ? 0 : pool->buffer_bytes();
  *max_records = 0;  // as many as fit
}

void Recording::Impl::completed(void*, std::uint32_t, std::uint8_t* buffer, std::size_t,
                                std::size_t valid) {
  Impl& impl = *get().impl_;
  BufferPool* pool = impl.pool;
  if (pool == nullptr || !pool->complete(buffer, valid)) return;
  {
    const std::lock_guard lock(impl.wake_mutex);
    impl.has_buffers = true;
  }
  impl.wake.notify_one();
}

void Recording::Impl::make_pool(const RecordingOptions& wanted) {
  const bool same = pool != nullptr && wanted.buffers == options.buffers &&
                    wanted.buffer_bytes == options.buffer_bytes;
  if (same) return;
  pools.push_back(std::make_unique<BufferPool>(wanted.buffers, wanted.buffer_bytes));
  pool = pools.back().get();
}

// What is enabled is counted, so that disable() takes back as much.
void Recording::Impl::enable() {
  library->register_callbacks(&Impl::requested, &Impl::completed);
  library->use_system_thread_ids(true);
  for (const abi::Kind kind : kinds) {
    library->enable(kind);
    ++num_enabled_kinds;
  }
  for (const Call& call : recorded_calls()) {
    library->enable_call(call, true);
    ++num_enabled_calls;
  }
}

// All, whatever fails; then throws the first failure.
void Recording::Impl::disable() {
  std::exception_ptr first;
  const auto attempt = [&first](auto&& call) {
    try {
      call();
    } catch (const CuptiError&) {
      if (first == nullptr) first = std::current_exception();
    }
  };
  const auto calls = recorded_calls();
  for (; num_enabled_calls > 0; --num_enabled_calls) {
    attempt([&] { library->enable_call(calls[num_enabled_calls - 1], false); });
  }
  for (; num_enabled_kinds > 0; --num_enabled_kinds) {
    attempt([&] { library->disable(kinds[num_enabled_kinds - 1]); });
  }
  attempt([&] { library->use_system_thread_ids(false); });
  if (first != nullptr) std::rethrow_exception(first);
}

// By who holds rows_mutex.
void Recording::Impl::read_all() {
  BufferPool* from = pool;
  Rows& rows = decoder->rows();
  while (const auto filled = from->take()) {
    const std::size_t known = rows.calls.size();
    try {
      decoder->read(filled->data, filled->valid_bytes);
    } catch (const CuptiError&) {
      if (failure == nullptr) failure = std::current_exception();
    }
    from->done(*filled);
    for (std::size_t i = known; i < rows.calls.size(); ++i) threads.see(rows.calls[i].thread);
  }
}

void Recording::Impl::read_until_end() {
  pthread_setname_np(pthread_self(), "pt_prism_read");
  std::unique_lock lock(wake_mutex);
  for (;;) {
    wake.wait(lock, [this] { return ends || wants_flush || has_buffers; });
    if (ends) return;
    const bool flushes = std::exchange(wants_flush, false);
    has_buffers = false;
    lock.unlock();
    try {
      if (flushes) library->flush(0);
      const std::lock_guard rows(rows_mutex);
      if (flushes) clock.anchor(*library);
      read_all();
    } catch (const CuptiError&) {
      const std::lock_guard rows(rows_mutex);
      if (failure == nullptr) failure = std::current_exception();
    }
    lock.lock();
  }
}

void Recording::Impl::end_reader() {
  {
    const std::lock_guard lock(wake_mutex);
    ends = true;
  }
  wake.notify_one();
  reader.join();
}

void Recording::start(const RecordingOptions& options) {
  Impl& impl = *impl_;
  if (impl.active) throw CuptiError("CUPTI: a recording is under way; stop it first");
  if (options.use_cupti && (impl.library == nullptr || impl.options.library != options.library)) {
    impl.decoder.reset();  // it refers to the one before
    impl.library = std::make_unique<Library>(options.library);
  }
  if (options.use_cupti) impl.make_pool(options);
  impl.options = options;
  impl.iterations = 0;
  impl.notes = {};
  constexpr std::size_t plenty = std::size_t{1} << 16;  // no growth on the way, mostly
  impl.notes.notes.reserve(plenty);
  impl.notes.parts.reserve(plenty / 4);
  impl.launches.clear();
  impl.communicators.clear();
  impl.sealed = UINT64_MAX;
  impl.threads = {};
  impl.clock = {};
  impl.failure = nullptr;
  impl.dropped = 0;
  impl.counts = {};
  impl.ends = impl.wants_flush = impl.has_buffers = false;
  if (options.use_cupti) {
    impl.decoder.emplace(*impl.library);
    impl.counts.refused_before = impl.pool.load()->refused();
    impl.clock.anchor(*impl.library);
    try {
      impl.enable();
      impl.library->dropped_records();  // before: not of this recording
    } catch (const CuptiError&) {
      try {
        impl.disable();
      } catch (const CuptiError&) {  // the first failure is the one to tell
      }
      throw;
    }
    impl.reader = std::thread([&impl] { impl.read_until_end(); });
  }
  impl.started = impl.last_note = now();
  impl.active = true;
}

std::uint32_t Recording::add_communicator(std::string_view name, std::uint32_t size,
                                          std::uint32_t position) {
  const std::lock_guard lock(impl_->notes_mutex);
  impl_->communicators.push_back({std::string(name), size, position, {}});
  return static_cast<std::uint32_t>(impl_->communicators.size() - 1);
}

void Recording::set_members(std::uint32_t slot, std::span<const std::uint32_t> members) {
  const std::lock_guard lock(impl_->notes_mutex);
  PRISM_CHECK(slot < impl_->communicators.size());
  impl_->communicators[slot].members.assign(members.begin(), members.end());
}

StreamKey Recording::stream_key(void* context, void* stream) const {
  if (impl_->library == nullptr) return {};
  return {impl_->library->context_id(context), impl_->library->stream_id(context, stream)};
}

// By who holds notes_mutex.
void Recording::Impl::note(Note note) {
  note.thread = this_thread();
  note.end = get().now();
  if (note.end == 0) {  // CUPTI did not answer: not before the last one
    note.end = last_note;
    ++counts.untimed_notes;
  }
  if (note.begin == 0) note.begin = note.end;
  last_note = note.end;
  notes.notes.push_back(note);
}

std::uint64_t Recording::communicate(std::uint64_t begin, StreamKey stream,
                                     std::span<const Op> parts) {
  if (!active() || parts.empty()) return 0;
  const std::lock_guard lock(impl_->notes_mutex);
  Note note;
  note.kind = Note::Kind::communicate;
  note.begin = begin;
  note.stream = stream;
  note.first = static_cast<std::uint32_t>(impl_->notes.parts.size());
  note.count = static_cast<std::uint32_t>(parts.size());
  for (const Op& part : parts) {
    PRISM_CHECK(part.ref < impl_->communicators.size());
    impl_->notes.parts.push_back(part);
  }
  impl_->launches.push_back(static_cast<std::uint32_t>(impl_->notes.notes.size()));
  impl_->note(note);
  return impl_->launches.size() - 1;
}

void Recording::reached(std::uint64_t launch, std::uint64_t begin, std::uint64_t end) {
  const std::lock_guard lock(impl_->notes_mutex);
  if (launch >= impl_->launches.size() || begin > end) return;
  Note& note = impl_->notes.notes[impl_->launches[launch]];
  note.device_begin = begin;
  note.device_end = end;
}

void Recording::own_calls(std::uint64_t begin) {
  if (!active()) return;
  const std::lock_guard lock(impl_->notes_mutex);
  Note note;
  note.kind = Note::Kind::own;
  note.begin = begin;
  impl_->note(note);
}

void Recording::block_allocated(std::int64_t bytes) {
  if (!active()) return;
  const std::lock_guard lock(impl_->notes_mutex);
  Note note;
  note.kind = Note::Kind::allocate;
  note.bytes = bytes;
  impl_->note(note);
}

void Recording::block_freed(std::int64_t bytes) {
  if (!active()) return;
  const std::lock_guard lock(impl_->notes_mutex);
  Note note;
  note.kind = Note::Kind::free;
  note.bytes = bytes;
  impl_->note(note);
}

void Recording::mark(MarkKind kind, std::string_view label) {
  if (!active()) return;
  const std::lock_guard lock(impl_->notes_mutex);
  Note note;
  note.kind = Note::Kind::mark;
  note.mark = kind;
  note.label = static_cast<std::uint32_t>(impl_->notes.labels.size());
  impl_->notes.labels.emplace_back(label);
  impl_->note(note);
  if (kind == MarkKind::iteration) ++impl_->iterations;
}

void Recording::flush() {
  if (!active() || !impl_->options.use_cupti) return;
  {
    const std::lock_guard lock(impl_->wake_mutex);
    impl_->wants_flush = true;
  }
  impl_->wake.notify_one();
}

void Recording::seal() {
  const std::lock_guard lock(impl_->notes_mutex);
  if (impl_->sealed == UINT64_MAX) impl_->sealed = now();
}

void Recording::stop() {
  Impl& impl = *impl_;
  if (!impl.active.exchange(false)) return;
  seal();
  if (!impl.options.use_cupti) return;
  impl.end_reader();
  const std::lock_guard lock(impl.rows_mutex);
  const auto attempt = [&impl](auto&& call) {
    try {
      call();
    } catch (const CuptiError&) {
      if (impl.failure == nullptr) impl.failure = std::current_exception();
    }
  };
  attempt([&] { impl.library->flush(abi::flush_forced); });
  impl.read_all();
  attempt([&] { impl.clock.anchor(*impl.library); });
  attempt([&] { impl.dropped = impl.library->dropped_records(); });
  attempt([&] { impl.disable(); });
  impl.counts.dropped_records = impl.dropped;
  impl.counts.refused_buffers = impl.pool.load()->refused() - impl.counts.refused_before;
  if (impl.failure != nullptr) std::rethrow_exception(impl.failure);
}

Graph Recording::finish(const MemoryPeaks& peaks, std::span<const std::string> call_sites,
                        std::string_view metadata) {
  Impl& impl = *impl_;
  PRISM_CHECK(!impl.active);
  const std::scoped_lock lock(impl.notes_mutex, impl.rows_mutex);
  Recorder recorder(impl.options.rank, impl.options.world_size);
  for (std::size_t slot = 0; slot < impl.communicators.size(); ++slot) {
    const Communicator& of = impl.communicators[slot];
    const std::uint32_t added = recorder.add_communicator(of.name, of.size, of.position);
    PRISM_CHECK(added == slot);
    if (!of.members.empty()) recorder.set_members(added, of.members);
  }
  JoinOptions options;
  options.origin = impl.started;
  options.end = impl.sealed;
  options.gaps_as_callbacks = impl.options.gaps_as_callbacks;
  options.is_program_thread = [&impl](std::uint32_t thread) {
    return impl.threads.is_program_thread(thread);
  };
  const Rows none;
  const Rows& rows = impl.decoder ? impl.decoder->rows() : none;
  impl.counts.join = join(rows, impl.notes, options, recorder);
  impl.counts.read(rows);
  impl.counts.clock_offset_ns = impl.clock.offset_ns();
  impl.counts.drift_ns = impl.clock.drift_ns();
  impl.counts.clock_width_ns = impl.clock.width_ns();
  impl.counts.cupti_version = impl.options.use_cupti ? impl.library->version() : 0;
  std::vector<std::uint32_t> sites;
  sites.reserve(call_sites.size());
  for (const std::string& site : call_sites) sites.push_back(recorder.string(site));
  recorder.set_call_sites(sites);
  recorder.set_peaks(peaks);
  impl.decoder.reset();
  impl.notes = {};
  return recorder.finish(metadata);
}

std::string Recording::report() const { return to_json(impl_->counts); }

}  // namespace prism::device::cupti
