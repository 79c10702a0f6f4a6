// When ops arrive and end on their streams: events for the times, words of mapped memory for
// whether, so that nobody asks the driver until there is something to read.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "device/resource.h"

namespace prism::device {

class Stamps {
 public:
  struct Times {
    std::int64_t arrival_ns = 0;  // since the stamps were made, by the device
    std::int64_t end_ns = 0;
  };

  // room: ops at the same time whose times have not been taken. The origin is recorded on `stream`.
  // One thread at a time, with the context current.
  Stamps(const Driver& driver, std::uint32_t room, void* stream, const Place& place);

  // Before and after the op is enqueued. Nothing: the stream is being captured (its events could
  // not be read), or there is no room, and nothing was done.
  std::optional<std::uint32_t> arrive(void* stream, const Place& place);
  void end(std::uint32_t stamp, void* stream, const Place& place);
  // An op that was not enqueued after all.
  void drop(std::uint32_t stamp);

  bool has_arrived(std::uint32_t stamp) const noexcept;
  bool has_ended(std::uint32_t stamp) const noexcept;
  // Of one that has ended; gives its place back. Nothing: it has not ended.
  std::optional<Times> take(std::uint32_t stamp, const Place& place);

 private:
  struct Words {
    std::uint32_t arrived;
    std::uint32_t ended;
  };
  struct Slot {
    Event arrival, end;
    std::uint32_t number = 0;
  };

  Address address(std::uint32_t stamp, std::size_t offset) const noexcept;
  const Words& words(std::uint32_t stamp) const noexcept;
  std::int64_t since_anchor(void* event, const Place& place) const;

  const Driver& driver_;
  Mapped memory_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  // Elapsed times are floats of milliseconds: times are counted from an event that moves along, so
  // that they stay exact to some tens of nanoseconds however long the program runs.
  Event anchor_;
  std::int64_t anchor_ns_ = 0;
};

}  // namespace prism::device
