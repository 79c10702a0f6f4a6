// Content ids. Blocks, kernels and file sections are named by XXH3 of their bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

namespace prism {

struct Hash128 {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
  std::string hex() const;
};

std::uint64_t hash64(std::span<const std::byte> bytes, std::uint64_t seed = 0) noexcept;
Hash128 hash128(std::span<const std::byte> bytes, std::uint64_t seed = 0) noexcept;

// Order-sensitive running hash over values of fixed layout.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  void bytes(std::span<const std::byte> data) noexcept;
  template <class T>
  void value(const T& v) noexcept {
    static_assert(std::has_unique_object_representations_v<T>);
    bytes(std::as_bytes(std::span<const T, 1>(&v, 1)));
  }
  Hash128 digest() const noexcept;

 private:
  void* state_;
};

struct Hash128Hasher {
  std::size_t operator()(const Hash128& h) const noexcept { return h.low; }
};

}  // namespace prism
