// A growing array of plain values. Grows with realloc, so that large arrays move page tables
// instead of bytes and untouched capacity costs no memory.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace prism {

template <class T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Buffer() = default;
  ~Buffer() { std::free(data_); }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }

  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  T* data() noexcept { return data_; }
  const T* data() const noexcept { return data_; }
  T& operator[](std::size_t i) noexcept { return data_[i]; }
  const T& operator[](std::size_t i) const noexcept { return data_[i]; }
  T& back() noexcept { return data_[size_ - 1]; }
  const T& back() const noexcept { return data_[size_ - 1]; }
  std::span<const T> view() const noexcept { return {data_, size_}; }
  std::span<const T> view(std::size_t from, std::size_t count) const noexcept {
    return {data_ + from, count};
  }
  std::span<const std::byte> raw() const noexcept { return std::as_bytes(view()); }

  void reserve(std::size_t capacity) {
    if (capacity > capacity_) reallocate(capacity);
  }
  // By value: the argument may live in this buffer.
  void push(T value) {
    if (size_ == capacity_) [[unlikely]] {
      reallocate(capacity_ < 16 ? 32 : capacity_ * 2);
    }
    data_[size_++] = value;
  }
  // Room for `count` more values, not initialised; returns where they start.
  T* extend(std::size_t count) {
    if (count > capacity_ - size_) {
      const std::size_t doubled = capacity_ * 2;
      reallocate(size_ + count > doubled ? size_ + count : doubled);
    }
    T* start = data_ + size_;
    size_ += count;
    return start;
  }
  void append(std::span<const T> values) {
    if (values.empty()) return;
    std::memcpy(extend(values.size()), values.data(), values.size_bytes());
  }
  void truncate(std::size_t size) noexcept { size_ = size; }
  void release() noexcept { Buffer().swap(*this); }
  void swap(Buffer& other) noexcept { *this = std::move(other); }

 private:
  void reallocate(std::size_t capacity) {
    if (capacity > static_cast<std::size_t>(-1) / sizeof(T)) throw std::bad_alloc();
    void* grown = std::realloc(data_, capacity * sizeof(T));
    if (grown == nullptr) throw std::bad_alloc();
    data_ = static_cast<T*>(grown);
    capacity_ = capacity;
  }

  T* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace prism
