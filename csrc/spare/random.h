// Seeded draws that are the same on every machine and standard library.
#pragma once

#include <cstdint>

namespace prism::spare {

// SplitMix64 (Steele, Lea, Flood, 2014).
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  // 0 to bound - 1; the bias is below 2^-32.
  std::int32_t below(std::int32_t bound) {
    return static_cast<std::int32_t>(((bits() >> 32) * static_cast<std::uint64_t>(bound)) >> 32);
  }

 private:
  std::uint64_t state_;
};

}  // namespace prism::spare
