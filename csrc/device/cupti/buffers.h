// The memory that CUPTI writes its records into: a fixed number of buffers, handed out and taken
// back without allocation. Where all are out, CUPTI drops records, and counts them. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace prism::device::cupti {

class BufferPool {
 public:
  struct Filled {
    std::uint8_t* data = nullptr;
    std::size_t valid_bytes = 0;
  };

  BufferPool(std::size_t count, std::size_t bytes);

  std::size_t buffer_bytes() const noexcept { return bytes_; }
  // For CUPTI. nullptr: none is left, counted in refused().
  std::uint8_t* request() noexcept;
  // False: not one of these, or not handed out.
  bool complete(std::uint8_t* buffer, std::size_t valid_bytes) noexcept;
  // For who reads them: the first that came back, to be given to done(). Nothing: none.
  std::optional<Filled> take() noexcept;
  void done(const Filled& filled) noexcept;

  std::uint64_t refused() const noexcept;

 private:
  enum class State : std::uint8_t { free, handed_out, filled, read };
  std::optional<std::size_t> index_of(const std::uint8_t* buffer) const noexcept;

  std::size_t bytes_;
  std::unique_ptr<std::uint8_t[]> memory_;  // pages cost nothing until they are written
  std::uint8_t* first_ = nullptr;           // aligned as records are
  mutable std::mutex mutex_;
  std::vector<State> states_;
  std::vector<std::size_t> free_;  // a stack
  std::vector<Filled> filled_;     // a ring
  std::size_t begin_ = 0, size_ = 0;
  std::uint64_t refused_ = 0;
};

}  // namespace prism::device::cupti
