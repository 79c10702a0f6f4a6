// Streams, events and host callbacks of the virtual GPU, as the CUDA runtime documents them.
#include "vgpu/device/stream.h"

#include <chrono>
#include <utility>

#include "vgpu/device/impl.h"
#include "vgpu/device/runtime.h"

namespace prism::vgpu {

void Session::Impl::order_blocking(Stream& stream) {
  if (&stream == &default_stream) {
    streams.for_each([this](Stream& other) {
      if (!other.is_blocking() || other.work == other.followed) return;
      other.followed = other.work;
      follow(default_stream, other);
    });
  } else if (stream.is_blocking() && stream.default_work != default_stream.work) {
    stream.default_work = default_stream.work;
    follow(stream, default_stream);
  }
}

void Session::Impl::follow(Stream& stream, Stream& before) {
  if (!before.queue.idle())
    push(stream, {.wait_stream = &before, .wait_move = before.queue.issued});
  if (!recording()) return;
  Op record;
  record.kind = OpKind::event_record;
  record.stream = index_of(before);
  ++records[record.stream];
  append(record);
  Op wait;
  wait.kind = OpKind::event_wait;
  wait.stream = index_of(stream);
  wait.event_stream = record.stream;
  wait.peer = 1;
  clock.wait(wait.stream, clock.record(record.stream));
  append(wait);
}

void* Runtime::create_stream(std::uint32_t flags, std::int32_t priority, std::int32_t device) {
  const std::lock_guard lock(impl_.mutex);
  Stream& stream = impl_.streams.create();
  stream.flags = flags;
  stream.priority = priority;
  stream.device = device;
  stream.default_work = impl_.default_stream.work;
  if (stream.is_blocking()) ++impl_.num_blocking;
  return &stream;
}

Outcome Runtime::destroy_stream(void* stream) {
  Stream* s = HandleTable<Stream>::find(stream);
  if (s == nullptr || s == &impl_.default_stream) return Outcome::bad_handle;
  {
    const std::lock_guard lock(impl_.mutex);
    if (s->is_blocking()) {
      impl_.order_default(impl_.default_stream);  // its work still comes before later default work
    }
  }
  impl_.drain_stream(*s);  // work that is queued still completes
  const std::lock_guard lock(impl_.mutex);
  if (s->is_blocking()) --impl_.num_blocking;
  if (s->index != Stream::unused) impl_.free_indices.push_back(s->index);
  impl_.streams.destroy(*s);
  return Outcome::done;
}

std::optional<std::int32_t> Runtime::stream_priority(void* stream) const {
  const Stream* s = impl_.find_stream(stream);
  return s == nullptr ? std::nullopt : std::optional(s->priority);
}

std::optional<std::int32_t> Runtime::stream_device(void* stream) const {
  const Stream* s = impl_.find_stream(stream);
  return s == nullptr ? std::nullopt : std::optional(s->device);
}

std::optional<std::uint32_t> Runtime::stream_flags(void* stream) const {
  const Stream* s = impl_.find_stream(stream);
  return s == nullptr ? std::nullopt : std::optional(s->flags);
}

Outcome Runtime::synchronize_stream(void* stream) {
  Stream* s = impl_.find_stream(stream);
  if (s == nullptr) return Outcome::bad_handle;
  if (impl_.recording()) {
    const std::lock_guard lock(impl_.mutex);
    if (impl_.active) {
      const std::uint16_t index = impl_.index_of(*s);
      impl_.clock_call(OpKind::stream_sync, index, [&] { impl_.clock.sync_stream(index); });
    }
  }
  impl_.drain_stream(*s);
  return Outcome::done;
}

Outcome Runtime::query_stream(void* stream) {
  Stream* s = impl_.find_stream(stream);
  if (s == nullptr) return Outcome::bad_handle;
  if (!is_program_thread() && !in_move()) return Outcome::done;
  {
    const std::lock_guard lock(impl_.mutex);
    if (impl_.recording()) {
      const std::uint16_t index = impl_.index_of(*s);
      Op op;
      op.kind = OpKind::query;
      op.stream = index;
      impl_.begin(op);
      const std::int64_t told = impl_.append(op, Ask::stream_done);
      if (!impl_.is_done(impl_.clock.stream(index), told)) return Outcome::not_ready;
    }
  }
  impl_.drain_stream(*s);
  return Outcome::done;
}

void Runtime::synchronize_device() {
  if (impl_.recording()) {
    const std::lock_guard lock(impl_.mutex);
    if (impl_.active) {
      impl_.clock_call(OpKind::device_sync, 0, [&] { impl_.clock.sync_device(); });
    }
  }
  impl_.drain_everything();
}

Outcome Runtime::host_callback(void* stream, std::function<void()> callback) {
  Stream* s = impl_.find_stream(stream);
  if (s == nullptr) return Outcome::bad_handle;
  {
    const std::lock_guard lock(impl_.mutex);
    impl_.order_default(*s);
    if (impl_.recording()) {
      Op op;
      op.kind = OpKind::host_callback;
      op.stream = impl_.index_of(*s);
      impl_.run(op);
    }
    if (!s->queue.idle()) {
      impl_.push(*s, {.run = std::move(callback)});
      return Outcome::done;
    }
  }
  const InMove running;
  callback();  // nothing before it is left to wait for
  return Outcome::done;
}

void* Runtime::create_event(bool timed) {
  const std::lock_guard lock(impl_.mutex);
  Event& event = impl_.events.create();
  event.timed = timed;
  return &event;
}

Outcome Runtime::destroy_event(void* event) {
  const std::lock_guard lock(impl_.mutex);
  Event* e = HandleTable<Event>::find(event);
  if (e == nullptr) return Outcome::bad_handle;
  impl_.watchdog.drop(*e);
  impl_.events.destroy(*e);
  return Outcome::done;
}

void Session::Impl::let_watchdog_look(std::unique_lock<SessionMutex>& lock) {
  if (!watchdog.look(clock.host())) return;
  // A thread that sleeps 100 ms on a busy machine; far beyond that nobody looks.
  constexpr auto patience = std::chrono::seconds(20);
  if (!watchdog_saw.wait_for(lock, patience, [&] { return watchdog.all_seen(); })) {
    watchdog.give_up();
  }
}

Outcome Runtime::record(void* event, void* stream) {
  std::unique_lock lock(impl_.mutex);
  Event* e = HandleTable<Event>::find(event);
  Stream* s = impl_.find_stream(stream);
  if (e == nullptr || s == nullptr) return Outcome::bad_handle;
  impl_.order_default(*s);
  e->queue = s;
  e->move = s->queue.issued;
  impl_.watchdog.drop(*e);
  if (!impl_.recording()) return Outcome::done;
  const bool ends_launch = std::exchange(s->communicated, false);
  if (ends_launch) impl_.let_watchdog_look(lock);
  Op op;
  op.kind = OpKind::event_record;
  op.stream = impl_.index_of(*s);
  impl_.begin(op);
  e->recorded = true;
  e->stream = op.stream;
  e->record = ++impl_.records[op.stream];
  e->time_ns = impl_.clock.record(op.stream);
  e->reached_ns = impl_.clock.ready(op.stream);
  if (ends_launch) impl_.watchdog.add(*e);
  impl_.end(op);
  return Outcome::done;
}

Outcome Runtime::wait(void* stream, void* event) {
  const std::lock_guard lock(impl_.mutex);
  Event* e = HandleTable<Event>::find(event);
  Stream* s = impl_.find_stream(stream);
  if (e == nullptr || s == nullptr) return Outcome::bad_handle;
  impl_.order_default(*s);
  if (e->queue != nullptr && e->queue != s && !e->queue->queue.is_done(e->move)) {
    impl_.push(*s, {.wait_stream = e->queue, .wait_move = e->move});
  }
  if (!impl_.recording() || !e->recorded) return Outcome::done;
  impl_.watchdog.drop(*e);
  s->waited = true;
  Op op;
  op.kind = OpKind::event_wait;
  op.stream = impl_.index_of(*s);
  op.event_stream = e->stream;
  op.peer = impl_.records[e->stream] - e->record + 1;
  impl_.begin(op);
  impl_.clock.wait(op.stream, e->time_ns);
  impl_.end(op);
  return Outcome::done;
}

void Session::Impl::drain_event(const Event& event) {
  StateLock lock(mutex.state);
  Stream* const stream = event.queue;
  if (stream != nullptr) drain_until(*stream, event.move, lock);
}

Outcome Runtime::synchronize_event(void* event) {
  Event* e = HandleTable<Event>::find(event);
  if (e == nullptr) return Outcome::bad_handle;
  if (impl_.recording()) {
    const std::lock_guard lock(impl_.mutex);
    if (impl_.active && e->recorded) {
      Op op;
      op.kind = OpKind::event_sync;
      op.event_stream = e->stream;
      op.peer = impl_.records[e->stream] - e->record + 1;
      impl_.begin(op);
      impl_.clock.sync_event(e->time_ns);
      impl_.end(op);
    }
  }
  impl_.drain_event(*e);
  return Outcome::done;
}

Outcome Session::Impl::answer_watchdog(Event& event) {
  const std::lock_guard lock(mutex);
  if (!active) return Outcome::done;
  const bool complete = watchdog.answer(event, recorder->num_ops());
  if (watchdog.all_seen()) watchdog_saw.notify_all();
  return complete ? Outcome::done : Outcome::not_ready;
}

Outcome Runtime::query_event(void* event) {
  Event* e = HandleTable<Event>::find(event);
  if (e == nullptr) return Outcome::bad_handle;
  if (!is_program_thread() && !in_move()) return impl_.answer_watchdog(*e);
  {
    const std::lock_guard lock(impl_.mutex);
    if (impl_.recording() && e->recorded) {
      const std::int64_t told = impl_.query(*e, Ask::event_done, true);
      if (!impl_.is_done(e->time_ns, told)) return Outcome::not_ready;
    }
  }
  impl_.drain_event(*e);
  return Outcome::done;
}

Outcome Runtime::elapsed(void* start, void* end, float& milliseconds) {
  const std::lock_guard lock(impl_.mutex);
  const Event* from = HandleTable<Event>::find(start);
  const Event* to = HandleTable<Event>::find(end);
  milliseconds = 0;
  if (from == nullptr || to == nullptr || !from->timed || !to->timed || from->queue == nullptr ||
      to->queue == nullptr) {
    return Outcome::bad_handle;  // never recorded, or made without timing
  }
  if (!from->recorded || !to->recorded) return Outcome::done;  // outside a rank: no clock
  std::int64_t begin = from->reached_ns, reached = to->reached_ns;
  if (impl_.port == nullptr) {
    if (!impl_.clock.is_done(begin) || !impl_.clock.is_done(reached)) return Outcome::not_ready;
  } else {
    if (!impl_.recording()) return Outcome::not_ready;
    for (const Event* event : {from, to}) {
      if (impl_.query(*event, Ask::event_done, false) == 0) return Outcome::not_ready;
    }
    begin = impl_.query(*from, Ask::event_time, false);
    reached = impl_.query(*to, Ask::event_time, false);
  }
  milliseconds = static_cast<float>(static_cast<double>(reached - begin) * 1e-6);
  return Outcome::done;
}

}  // namespace prism::vgpu
