// Bytes that really move: queues of streams, copies, fills, and what device memory reads as.
#include <algorithm>
#include <cstring>

#include "vgpu/device/impl.h"

namespace prism::vgpu {

namespace {

// Of the thread that reads: the program's and autograd's take turns, each between its own calls.
thread_local std::vector<std::string> answers_;

}  // namespace

const Move* first_behind(const Stream& stream) noexcept {
  for (const Stream* at = &stream;;) {
    if (at->queue.moves.empty()) return nullptr;
    const Move& first = at->queue.moves.front();
    if (first.wait_stream == nullptr || first.wait_stream->queue.is_done(first.wait_move)) {
      return &first;
    }
    at = first.wait_stream;
  }
}

void Session::Impl::drain_until(Stream& stream, std::uint64_t move, StateLock& lock) {
  if (has_left() || stream.queue.is_done(move)) return;
  const std::thread::id self = std::this_thread::get_id();
  if (mover == self) {
    exchange != nullptr ? step_until(stream, move, lock) : run_until(stream, move, lock);
    return;
  }
  while (left || mover != std::thread::id()) {
    await(stream, move, lock);
    if (stream.queue.is_done(move)) return;
  }
  mover = self;
  run_until(stream, move, lock);
  mover = {};
  move_made.notify_all();
}

// Until that move is made, or the caller may run moves itself.
void Session::Impl::await(Stream& stream, std::uint64_t move, StateLock& lock) {
  lock.unlock();
  {
    const LetGo interpreter;
    if (exchange != nullptr) exchange->stir();
    lock.lock();
    while (left || (mover != std::thread::id() && !stream.queue.is_done(move))) {
      if (exchange != nullptr && !left) {
        const Move* first = first_behind(stream);
        exchange->note_wait(first != nullptr ? first->lacks : std::nullopt);
      }
      move_made.wait_for(lock, std::chrono::milliseconds(100));
    }
    if (exchange != nullptr) exchange->note_wait(std::nullopt);
    lock.unlock();
  }
  lock.lock();
}

void Session::Impl::run_until(Stream& stream, std::uint64_t move, StateLock& lock) {
  MoveQueue& queue = stream.queue;
  while (!queue.is_done(move)) {
    const Move& next = queue.moves.front();
    if (next.runs) return;  // it called in again, and cannot wait for itself
    if (next.wait_stream != nullptr) {
      run_until(*next.wait_stream, next.wait_move, lock);
      if (!next.wait_stream->queue.is_done(next.wait_move)) return;
      pop(stream);
    } else {
      run_first(stream, lock);
    }
  }
}

void Session::Impl::run_first(Stream& stream, StateLock& lock) {
  Move& first = stream.queue.moves.front();
  first.runs = true;
  lock.unlock();  // it may be a rule or a callback, which calls in again
  {
    const InMove running;
    first.run();
  }
  lock.lock();
  pop(stream);
}

void Session::Impl::pop(Stream& stream) {
  stream.queue.moves.pop_front();
  ++stream.queue.done;
  --pending;
  move_made.notify_all();
}

void Session::Impl::drain_stream(Stream& stream) {
  StateLock lock(mutex.state);
  drain_until(stream, stream.queue.issued, lock);
}

std::vector<Stream*> Session::Impl::all_streams() {
  std::vector<Stream*> all;
  streams.for_each([&](Stream& stream) { all.push_back(&stream); });
  return all;
}

void Session::Impl::drain_everything() {
  StateLock lock(mutex.state);
  drain_until(default_stream, default_stream.queue.issued, lock);
  for (Stream* stream : all_streams()) drain_until(*stream, stream->queue.issued, lock);
}

void Session::Impl::push(Stream& stream, Move move) {
  stream.queue.moves.push_back(std::move(move));
  ++stream.queue.issued;
  ++pending;
}

void Session::Impl::move_in_order(Stream& stream, std::function<void(Impl&)> move,
                                  std::vector<Range> touches) {
  auto run = [this, move = std::move(move)] {
    const std::lock_guard lock(mutex.state);
    move(*this);
  };
  push(stream, {.run = std::move(run), .touches = std::move(touches)});
}

void Session::Impl::push(void* stream, Move move) {
  const std::lock_guard lock(mutex);
  Stream* found = find_stream(stream);
  push(found != nullptr ? *found : default_stream, std::move(move));
}

void Session::enqueue(void* stream, std::function<void()> move, std::vector<Range> touches) {
  impl_->push(stream, {.run = std::move(move), .touches = std::move(touches)});
}

void Session::enqueue(void* stream, std::function<void()> move) {
  impl_->push(stream, {.run = std::move(move)});
}

void Session::drain(void* stream) {
  Stream* s = impl_->find_stream(stream);
  if (s != nullptr) impl_->drain_stream(*s);
}

void Session::drain_all() { impl_->drain_everything(); }

void Session::note_written(const void* address, std::int64_t bytes) {
  const std::lock_guard lock(impl_->mutex.state);
  if (impl_->memory.contains(address)) impl_->memory.written(range_of(address, bytes));
}

std::vector<Range> Session::written(const void* address, std::int64_t bytes) const {
  const Range range = range_of(address, bytes);
  if (!impl_->memory.contains(address)) return {range};
  const std::lock_guard lock(impl_->mutex.state);
  return impl_->memory.written_in(range);
}

void Session::clear(void* address, std::int64_t bytes) {
  if (!impl_->memory.contains(address)) {
    std::memset(address, 0, static_cast<std::size_t>(bytes));
    return;
  }
  const std::lock_guard lock(impl_->mutex.state);
  impl_->memory.zero(range_of(address, bytes));
}

void Session::supply(void* stream, void* address, std::string_view bytes) {
  Impl& impl = *impl_;
  const std::lock_guard lock(impl.mutex);
  const Range range = range_of(address, static_cast<std::int64_t>(bytes.size()));
  const auto write = [range](Impl& i, std::string_view data) {
    std::memcpy(reinterpret_cast<void*>(range.begin), data.data(), data.size());
    i.memory.written(range);
  };
  Stream* found = impl.find_stream(stream);
  Stream& s = found != nullptr ? *found : impl.default_stream;
  if (s.queue.idle()) {
    write(impl, bytes);
    return;
  }
  impl.move_in_order(s, [write, kept = std::string(bytes)](Impl& i) { write(i, kept); }, {range});
}

void Session::answer_reads(std::vector<std::string> answers) { answers_ = std::move(answers); }

const std::string* answer_for(std::int64_t bytes) noexcept {
  for (const std::string& answer : answers_) {
    if (static_cast<std::int64_t>(answer.size()) == bytes) return &answer;
  }
  return nullptr;
}

bool Session::is_device(const void* address) const noexcept {
  return impl_->memory.contains(address);
}

bool Session::is_live(const void* address, std::int64_t bytes) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->memory.is_live(range_of(address, bytes));
}

void Session::Impl::zero_in_order(Range range) {
  bool unknown = false;
  Stream* user = nullptr;
  {
    const std::lock_guard lock(mutex);
    if (pending == 0) {
      memory.zero(range);
      return;
    }
    const auto look = [&](Stream& stream) {
      for (const Move& queued : stream.queue.moves) {
        if (queued.wait_stream != nullptr) continue;
        if (!queued.touches) {
          unknown = true;
          continue;
        }
        for (const Range& touched : *queued.touches) {
          if (touched.overlaps(range)) user = &stream;
        }
      }
    };
    look(default_stream);
    streams.for_each(look);
    if (user == nullptr && !unknown) {
      memory.zero(range);
      return;
    }
    if (!unknown) {
      // The allocator hands a block out again on the stream that used it, or once it saw that the
      // others are done with it: so its place is behind the last user.
      move_in_order(*user, [range](Impl& impl) { impl.memory.zero(range); }, {range});
      return;
    }
  }
  drain_everything();
  const std::lock_guard lock(mutex);
  memory.zero(range);
}

void Session::Impl::move_rows(void* to, const void* from, std::int64_t width, std::int64_t rows,
                              std::int64_t to_pitch, std::int64_t from_pitch) {
  const bool small = width * rows <= real_bytes_limit;
  for (std::int64_t row = 0; row < rows; ++row) {
    move_bytes(static_cast<char*>(to) + row * to_pitch,
               static_cast<const char*>(from) + row * from_pitch, width, small);
  }
}

void Session::Impl::move_bytes(void* to, const void* from, std::int64_t bytes, bool small) {
  const bool to_device = memory.contains(to);
  const bool from_device = memory.contains(from);
  const Range target = range_of(to, bytes);
  if (!to_device && !from_device) {
    std::memmove(to, from, static_cast<std::size_t>(bytes));
    return;
  }
  const bool real = small && (!from_device || memory.is_written(range_of(from, bytes)));
  if (!to_device) {
    if (real) {
      std::memmove(to, from, static_cast<std::size_t>(bytes));
    } else {
      std::memset(to, 0, static_cast<std::size_t>(bytes));
    }
    return;
  }
  // What is not moved reads as zero, not as what lay there: finite, and the same in every run.
  if (real) {
    std::memmove(to, from, static_cast<std::size_t>(bytes));
    memory.written(target);
  } else {
    memory.zero(target);
  }
}

void Session::Impl::fill(void* to, std::uint32_t pattern, std::int32_t pattern_bytes,
                         std::int64_t bytes) {
  const bool device = memory.contains(to);
  if (device && (pattern == 0 || bytes > real_bytes_limit)) {
    memory.zero(range_of(to, bytes));
    return;
  }
  auto* out = static_cast<unsigned char*>(to);
  if (pattern_bytes == 1) {
    std::memset(out, static_cast<int>(pattern), static_cast<std::size_t>(bytes));
  } else {
    for (std::int64_t at = 0; at < bytes; at += pattern_bytes) {
      std::memcpy(out + at, &pattern,
                  static_cast<std::size_t>(std::min<std::int64_t>(pattern_bytes, bytes - at)));
    }
  }
  if (device) memory.written(range_of(to, bytes));
}

void Session::Impl::count_read(const void* from, std::int64_t bytes, bool supplied) {
  if (!active) return;
  ReadRule rule = ReadRule::zero;
  if (supplied) {
    rule = ReadRule::supplied;
  } else if (bytes > real_bytes_limit) {
    rule = ReadRule::large;
  } else if (memory.is_written(range_of(from, bytes))) {
    rule = ReadRule::written;
  }
  ReadCount& count = reads[static_cast<std::size_t>(rule)];
  ++count.reads;
  count.bytes += bytes;
}

}  // namespace prism::vgpu
