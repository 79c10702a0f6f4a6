// Values that come and go, by number. Numbers given back are taken again, newest first, so that a
// pool in a steady state neither allocates nor leaves the cache.
#pragma once

#include <cstdint>
#include <vector>

namespace prism::engine {

inline constexpr std::uint32_t no_node = UINT32_MAX;

template <class T>
class Pool {
 public:
  // As the last holder left it. References stay valid until the next call.
  std::uint32_t take() {
    if (free_.empty()) {
      values_.emplace_back();
      return static_cast<std::uint32_t>(values_.size() - 1);
    }
    const std::uint32_t id = free_.back();
    free_.pop_back();
    return id;
  }
  void give_back(std::uint32_t id) { free_.push_back(id); }

  T& operator[](std::uint32_t id) noexcept { return values_[id]; }
  const T& operator[](std::uint32_t id) const noexcept { return values_[id]; }

 private:
  std::vector<T> values_;
  std::vector<std::uint32_t> free_;
};

}  // namespace prism::engine
