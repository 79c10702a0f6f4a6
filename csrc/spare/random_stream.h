// Random numbers of the life-time simulator: one stream for each purpose and index, so that what
// one group draws depends on the seed alone, never on what others drew or on threads.
#pragma once

#include <cmath>
#include <cstdint>

namespace prism::spare {

enum class Purpose : std::uint64_t { kLifetime = 1, kDomain = 2, kJitter = 3, kOrder = 4 };

// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
class RandomStream {
 public:
  RandomStream() = default;
  RandomStream(std::uint64_t seed, Purpose purpose, std::uint64_t index)
      : state_(mix(mix(mix(seed + kStep) ^ static_cast<std::uint64_t>(purpose)) + index)) {}

  std::uint64_t bits() {
    state_ += kStep;
    return mix(state_);
  }
  // In (0, 1), never an end of it; 2^-53 apart.
  double unit() { return (static_cast<double>(bits() >> 11) + 0.5) * 0x1p-53; }
  // 0 to bound - 1; the bias is below 2^-32.
  std::int32_t below(std::int32_t bound) {
    return static_cast<std::int32_t>(((bits() >> 32) * static_cast<std::uint64_t>(bound)) >> 32);
  }

 private:
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15ULL;

  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

  std::uint64_t state_ = 0;
};

}  // namespace prism::spare
