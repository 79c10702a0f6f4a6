// Memory and copies of the virtual GPU, as the CUDA runtime documents them.
#include "vgpu/device/runtime.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "vgpu/device/impl.h"

namespace prism::vgpu {

namespace {
thread_local std::int32_t chosen_device = 0;
}
std::int32_t Runtime::current_device() noexcept { return chosen_device; }
void Runtime::set_current_device(std::int32_t device) noexcept { chosen_device = device; }

Runtime::Runtime() : impl_(*Session::get().impl_) {}

Runtime& Runtime::get() {
  static Runtime runtime;
  return runtime;
}

std::int64_t& Session::Impl::used(std::int32_t device) {
  const auto index = static_cast<std::size_t>(std::max(device, 0));
  if (index >= used_bytes.size()) used_bytes.resize(index + 1, 0);
  return used_bytes[index];
}

void Session::Impl::append_frees() {
  std::sort(frees.begin(), frees.end(), std::greater<>());
  Op op;
  op.kind = OpKind::free;
  for (const std::int64_t bytes : frees) {
    op.bytes = bytes;
    recorder->append(op);
    if (port != nullptr) post(op, Ask::nothing);
  }
  frees.clear();
}

void Session::Impl::memory_op(OpKind kind, std::int64_t bytes) {
  if (!active || in_move()) return;
  if (kind == OpKind::free && !options.measure_host) {
    frees.push_back(bytes);
    return;
  }
  Op op;
  op.kind = kind;
  op.bytes = bytes;
  // Torch's own threads free blocks too: they count, at no time of the program's.
  if (is_program_thread()) begin(op);
  end(op);
}

bool Session::Impl::take(std::int64_t bytes, std::int64_t asked, std::int32_t device) {
  const std::int64_t free_bytes = options.device.memory_bytes - held(device);
  if (bytes > free_bytes) {
    failed = {asked, held(device), std::max<std::int64_t>(free_bytes, 0),
              recorder ? recorder->num_ops() + frees.size() : 0, failed.count + 1};
    return false;
  }
  used(device) += bytes;
  peak_device_bytes = std::max(peak_device_bytes, held(device));
  return true;
}

void* Runtime::allocate(std::int64_t bytes, std::int32_t device) {
  constexpr std::int64_t unit = DeviceMemory::granularity;
  const std::lock_guard lock(impl_.mutex);
  if (bytes <= 0) return nullptr;
  const std::int64_t rounded = bytes > INT64_MAX - unit ? bytes : (bytes + unit - 1) / unit * unit;
  if (!impl_.take(rounded, bytes, device)) return nullptr;
  void* address = impl_.memory.allocate(bytes, device);
  if (address == nullptr) {
    impl_.used(device) -= rounded;
    return nullptr;
  }
  impl_.memory_op(OpKind::reserve, bytes);
  return address;
}

bool Runtime::free(void* address, bool device_waits) {
  if (device_waits && impl_.recording()) {
    const std::lock_guard lock(impl_.mutex);
    const auto block = impl_.memory.find(address);
    if (!block || block->range.begin != reinterpret_cast<std::uintptr_t>(address)) return false;
    impl_.clock_call(OpKind::device_sync, 0, [this] { impl_.clock.sync_device(); });
  }
  impl_.drain_everything();
  const std::lock_guard lock(impl_.mutex);
  const auto block = impl_.memory.free(address);
  if (!block) return false;
  impl_.used(block->device) -= static_cast<std::int64_t>(block->range.size());
  impl_.memory_op(OpKind::release, block->asked_bytes);
  return true;
}

MemoryUse Runtime::memory(std::int32_t device) const {
  const std::lock_guard lock(impl_.mutex);
  const std::int64_t total = impl_.options.device.memory_bytes;
  return {std::max<std::int64_t>(total - impl_.held(device), 0), total};
}

bool Runtime::take_memory(std::int64_t bytes, std::int32_t device) {
  const std::lock_guard lock(impl_.mutex);
  if (bytes <= 0 || !impl_.take(bytes, bytes, device)) return false;
  impl_.memory_op(OpKind::reserve, bytes);
  return true;
}

void Runtime::give_memory(std::int64_t bytes, std::int32_t device) {
  const std::lock_guard lock(impl_.mutex);
  impl_.used(device) -= bytes;
  impl_.memory_op(OpKind::release, bytes);
}

void* Runtime::reserve_addresses(std::int64_t bytes, std::int32_t device) {
  const std::lock_guard lock(impl_.mutex);
  return impl_.memory.allocate(bytes, device, DeviceMemory::Kind::addresses);
}

bool Runtime::release_addresses(void* address) {
  impl_.drain_everything();
  const std::lock_guard lock(impl_.mutex);
  return impl_.memory.free(address, DeviceMemory::Kind::addresses).has_value();
}

void Runtime::forget(void* address, std::int64_t bytes) {
  impl_.drain_everything();
  const std::lock_guard lock(impl_.mutex);
  impl_.memory.zero(range_of(address, bytes));
}

void Runtime::block_allocated(void* address, std::int64_t bytes) {
  {
    const std::lock_guard lock(impl_.mutex);
    impl_.memory_op(OpKind::allocate, bytes);
  }
  impl_.zero_in_order(range_of(address, bytes));
}

void Runtime::block_freed(std::int64_t bytes) {
  const std::lock_guard lock(impl_.mutex);
  impl_.memory_op(OpKind::free, bytes);
}

AddressInfo Runtime::find(const void* address) const {
  const std::lock_guard lock(impl_.mutex);
  AddressInfo info;
  if (const auto block = impl_.memory.find(address)) {
    info.where = AddressInfo::Where::device;
    info.device = block->device;
    info.base = reinterpret_cast<void*>(block->range.begin);
    info.bytes = block->asked_bytes;
  } else if (const auto range = impl_.pinned.find(address)) {
    info.where = AddressInfo::Where::pinned;
    info.base = reinterpret_cast<void*>(range->begin);
    info.bytes = static_cast<std::int64_t>(range->size());
  }
  return info;
}

void* Runtime::allocate_pinned(std::int64_t bytes) {
  const std::lock_guard lock(impl_.mutex);
  return impl_.pinned.allocate(bytes);
}

bool Runtime::free_pinned(void* address) {
  impl_.drain_everything();  // queued copies may still read or write it
  const std::lock_guard lock(impl_.mutex);
  return impl_.pinned.free(address);
}

bool Runtime::register_pinned(void* address, std::int64_t bytes) {
  const std::lock_guard lock(impl_.mutex);
  return impl_.pinned.add(address, bytes);
}

bool Runtime::unregister_pinned(void* address) {
  impl_.drain_everything();
  const std::lock_guard lock(impl_.mutex);
  return impl_.pinned.remove(address);
}

Outcome Runtime::copy(void* stream, const Copy& copy, bool host_asks_now) {
  Stream* s = impl_.find_stream(stream);
  if (s == nullptr) return Outcome::bad_handle;
  const std::int64_t bytes = copy.width * copy.rows;
  if (bytes <= 0) return Outcome::done;
  const auto extent = [&copy](std::int64_t pitch) {
    return copy.rows > 1 ? pitch * (copy.rows - 1) + copy.width : copy.width;
  };
  const Range to = range_of(copy.to, extent(copy.to_pitch));
  const Range from = range_of(copy.from, extent(copy.from_pitch));
  const bool to_device = impl_.memory.contains(copy.to);
  const bool from_device = impl_.memory.contains(copy.from);
  const CopyDirection direction =
      to_device ? (from_device ? CopyDirection::device_to_device : CopyDirection::host_to_device)
                : (from_device ? CopyDirection::device_to_host : CopyDirection::host_to_host);
  bool pageable = false;
  {
    const std::lock_guard lock(impl_.mutex);
    if ((to_device && !impl_.memory.is_live(to)) || (from_device && !impl_.memory.is_live(from))) {
      return Outcome::bad_address;
    }
    if (!to_device) pageable = !impl_.pinned.find(copy.to);
    if (!from_device) pageable = pageable || !impl_.pinned.find(copy.from);
  }
  const bool host_waits = host_asks_now
                              ? direction != CopyDirection::device_to_device
                              : direction == CopyDirection::host_to_host ||
                                    (direction == CopyDirection::device_to_host && pageable);
  Session::get().copy(stream, bytes, direction, host_waits);

  const bool read = direction == CopyDirection::device_to_host;
  const std::string* answer = read && copy.rows == 1 ? answer_for(bytes) : nullptr;
  // A copy of the answer, where there is one: the move may run after answers changed.
  const auto move = [copy, bytes, read, answers = answer != nullptr,
                     kept = answer != nullptr ? *answer : std::string()](Session::Impl& impl) {
    if (read) impl.count_read(copy.from, bytes, answers);
    if (answers) {
      std::memcpy(copy.to, kept.data(), kept.size());
      return;
    }
    impl.move_rows(copy.to, copy.from, copy.width, copy.rows, copy.to_pitch, copy.from_pitch);
  };
  if (host_waits) impl_.drain_stream(*s);
  const std::lock_guard lock(impl_.mutex);
  if (host_waits || s->queue.idle()) {
    move(impl_);
    return Outcome::done;
  }
  std::vector<Range> touches;
  if (to_device) touches.push_back(to);
  if (from_device) touches.push_back(from);
  if (!from_device && pageable && bytes <= Session::real_bytes_limit) {
    // The program may change pageable memory as soon as the call returns: it is staged now.
    auto staged = std::make_shared<std::vector<unsigned char>>(static_cast<std::size_t>(bytes));
    impl_.move_rows(staged->data(), copy.from, copy.width, copy.rows, copy.width, copy.from_pitch);
    impl_.move_in_order(
        *s,
        [copy, staged](Session::Impl& impl) {
          impl.move_rows(copy.to, staged->data(), copy.width, copy.rows, copy.to_pitch, copy.width);
        },
        std::move(touches));
  } else {
    impl_.move_in_order(*s, move, std::move(touches));
  }
  return Outcome::done;
}

Outcome Runtime::set(void* stream, void* to, std::uint32_t pattern, std::int32_t pattern_bytes,
                     std::int64_t bytes, bool host_asks_now) {
  Stream* s = impl_.find_stream(stream);
  if (s == nullptr) return Outcome::bad_handle;
  if (bytes <= 0) return Outcome::done;
  const bool device = impl_.memory.contains(to);
  if (device) {
    const std::lock_guard lock(impl_.mutex);
    if (!impl_.memory.is_live(range_of(to, bytes))) return Outcome::bad_address;
  }
  Session::get().set(stream, bytes);
  if (host_asks_now && !device) impl_.drain_stream(*s);
  const std::lock_guard lock(impl_.mutex);
  if (s->queue.idle()) {
    impl_.fill(to, pattern, pattern_bytes, bytes);
    return Outcome::done;
  }
  std::vector<Range> touches;
  if (device) touches.push_back(range_of(to, bytes));
  impl_.move_in_order(
      *s,
      [to, pattern, pattern_bytes, bytes](Session::Impl& impl) {
        impl.fill(to, pattern, pattern_bytes, bytes);
      },
      std::move(touches));
  return Outcome::done;
}

}  // namespace prism::vgpu
