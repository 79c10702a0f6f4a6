#include "device/cupti/buffers.h"

#include "base/check.h"

namespace prism::device::cupti {
namespace {
constexpr std::size_t alignment = 8;
}

BufferPool::BufferPool(std::size_t count, std::size_t bytes)
    : bytes_(bytes / alignment * alignment),
      memory_(new std::uint8_t[count * bytes_ + alignment]),
      states_(count, State::free),
      filled_(count) {
  PRISM_CHECK(count > 0 && bytes_ > 0);
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.get());
  first_ = memory_.get() + (alignment - address % alignment) % alignment;
  free_.reserve(count);
  for (std::size_t i = count; i-- > 0;) free_.push_back(i);
}

std::optional<std::size_t> BufferPool::index_of(const std::uint8_t* buffer) const noexcept {
  const auto offset =
      reinterpret_cast<std::uintptr_t>(buffer) - reinterpret_cast<std::uintptr_t>(first_);
  const std::size_t index = offset / bytes_;
  if (offset % bytes_ != 0 || index >= states_.size()) return std::nullopt;
  return index;
}

std::uint8_t* BufferPool::request() noexcept {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    ++refused_;
    return nullptr;
  }
  const std::size_t index = free_.back();
  free_.pop_back();
  states_[index] = State::handed_out;
  return first_ + index * bytes_;
}

bool BufferPool::complete(std::uint8_t* buffer, std::size_t valid_bytes) noexcept {
  const std::lock_guard lock(mutex_);
  const auto index = index_of(buffer);
  if (!index || states_[*index] != State::handed_out || valid_bytes > bytes_) return false;
  states_[*index] = State::filled;
  filled_[(begin_ + size_++) % filled_.size()] = {buffer, valid_bytes};
  return true;
}

std::optional<BufferPool::Filled> BufferPool::take() noexcept {
  const std::lock_guard lock(mutex_);
  if (size_ == 0) return std::nullopt;
  const Filled filled = filled_[begin_];
  begin_ = (begin_ + 1) % filled_.size();
  --size_;
  states_[*index_of(filled.data)] = State::read;
  return filled;
}

void BufferPool::done(const Filled& filled) noexcept {
  const std::lock_guard lock(mutex_);
  const auto index = index_of(filled.data);
  if (!index || states_[*index] != State::read) return;
  states_[*index] = State::free;
  free_.push_back(*index);
}

std::uint64_t BufferPool::refused() const noexcept {
  const std::lock_guard lock(mutex_);
  return refused_;
}

}  // namespace prism::device::cupti
