#include "device/stamps.h"

#include <cmath>
#include <cstddef>
#include <utility>

namespace prism::device {
namespace {

constexpr std::int64_t anchor_moves_after_ns = 500'000'000;

}  // namespace

Stamps::Stamps(const Driver& driver, std::uint32_t room, void* stream, const Place& place)
    : driver_(driver), memory_(driver, room * sizeof(Words), place), slots_(room) {
  for (Slot& slot : slots_) {
    slot.arrival = make_event(driver, 0, place);
    slot.end = make_event(driver, 0, place);
  }
  for (std::uint32_t i = room; i > 0; --i) free_.push_back(i - 1);
  anchor_ = make_event(driver, 0, place);
  driver.call<Call::event_record>(place, anchor_.get(), stream);
}

Address Stamps::address(std::uint32_t stamp, std::size_t offset) const noexcept {
  return memory_.device() + stamp * sizeof(Words) + offset;
}
const Stamps::Words& Stamps::words(std::uint32_t stamp) const noexcept {
  return reinterpret_cast<const Words*>(memory_.host())[stamp];
}

std::optional<std::uint32_t> Stamps::arrive(void* stream, const Place& place) {
  if (free_.empty() || is_capturing(driver_, stream, place)) return std::nullopt;
  const std::uint32_t stamp = free_.back();
  Slot& slot = slots_[stamp];
  driver_.call<Call::event_record>(place, slot.arrival.get(), stream);
  driver_.call<Call::write_value32>(place, stream, address(stamp, offsetof(Words, arrived)),
                                    ++slot.number, write_default);
  free_.pop_back();
  return stamp;
}

void Stamps::end(std::uint32_t stamp, void* stream, const Place& place) {
  const Slot& slot = slots_[stamp];
  driver_.call<Call::event_record>(place, slot.end.get(), stream);
  driver_.call<Call::write_value32>(place, stream, address(stamp, offsetof(Words, ended)),
                                    slot.number, write_default);
}

void Stamps::drop(std::uint32_t stamp) { free_.push_back(stamp); }

bool Stamps::has_arrived(std::uint32_t stamp) const noexcept {
  return __atomic_load_n(&words(stamp).arrived, __ATOMIC_ACQUIRE) == slots_[stamp].number;
}
bool Stamps::has_ended(std::uint32_t stamp) const noexcept {
  return __atomic_load_n(&words(stamp).ended, __ATOMIC_ACQUIRE) == slots_[stamp].number;
}

std::int64_t Stamps::since_anchor(void* event, const Place& place) const {
  float ms = 0;
  driver_.call<Call::event_elapsed>(place, &ms, anchor_.get(), event);
  return std::llround(static_cast<double>(ms) * 1e6);
}

std::optional<Stamps::Times> Stamps::take(std::uint32_t stamp, const Place& place) {
  if (!has_ended(stamp)) return std::nullopt;
  Slot& slot = slots_[stamp];
  const std::int64_t arrival = since_anchor(slot.arrival.get(), place);
  float ms = 0;
  driver_.call<Call::event_elapsed>(place, &ms, slot.arrival.get(), slot.end.get());
  const Times times{anchor_ns_ + arrival,
                    anchor_ns_ + arrival + std::llround(static_cast<double>(ms) * 1e6)};
  if (arrival > anchor_moves_after_ns) {
    std::swap(anchor_, slot.arrival);
    anchor_ns_ += arrival;
  }
  free_.push_back(stamp);
  return times;
}

}  // namespace prism::device
