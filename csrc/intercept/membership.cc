#include "intercept/membership.h"

#include <mutex>
#include <unordered_map>
#include <utility>

namespace prism::intercept {

namespace {

struct Announcements {
  std::mutex mutex;
  std::unordered_map<int, std::vector<std::uint32_t>> by_color;
  std::optional<std::vector<std::uint32_t>> next;
};

Announcements& announcements() {
  static auto* announcements = new Announcements;
  return *announcements;
}

}  // namespace

void announce_split(int color, std::span<const std::uint32_t> members) {
  const std::lock_guard lock(announcements().mutex);
  announcements().by_color[color].assign(members.begin(), members.end());
}

void announce_next_split(std::span<const std::uint32_t> members) {
  const std::lock_guard lock(announcements().mutex);
  announcements().next.emplace(members.begin(), members.end());
}

std::optional<std::vector<std::uint32_t>> take_members(int color) {
  const std::lock_guard lock(announcements().mutex);
  auto next = std::exchange(announcements().next, std::nullopt);
  if (next) return next;
  const auto it = announcements().by_color.find(color);
  if (it == announcements().by_color.end()) return std::nullopt;
  return it->second;
}

}  // namespace prism::intercept
