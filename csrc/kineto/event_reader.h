// One event of a trace while it is read: its members and arguments, in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kineto/events.h"
#include "kineto/reader.h"

namespace prism {

class EventReader {
 public:
  // Keys of an event and of its arguments that have a place of their own.
  enum class Field : std::uint8_t {
    other,
    ph,
    cat,
    name,
    tid,
    ts,
    dur,
    args,
    correlation,
    device,
    stream,
    bytes,
    grid,
    block,
    shared,
  };

  EventReader(const KinetoOptions& options, KinetoEvents& events)
      : options_(options), events_(events) {}

  void begin();
  // A key of the event, of its arguments: what comes next belongs to it.
  void key(std::string_view key);
  void argument(std::string_view key);
  // The value of the last key, as text; of an argument that is kept whole, JSON.
  void member(std::string_view text);
  void argument_value(std::string_view text);
  void set_launch(std::size_t at, std::string_view text);  // of grid, block, shared bytes
  // The event is over: it is kept, or counted. False: there is no number left for it.
  bool end();

  Field field() const noexcept { return field_; }  // of the last key
  void leave_arguments() noexcept {
    field_ = Field::other;
    detail_ = false;
  }
  bool keeps_whole() const noexcept { return detail_; }  // the last argument

 private:
  struct Event {
    bool complete = true;  // as far as is known
    std::optional<std::uint32_t> name;
    std::uint32_t category = 0;
    std::uint32_t thread = 0;
    std::optional<std::int64_t> start_ns;
    std::optional<std::int64_t> duration_ns;
    std::int64_t correlation = KinetoEvents::none;
    std::int64_t device = KinetoEvents::none;
    std::int64_t stream = KinetoEvents::none;
    std::int64_t bytes = KinetoEvents::none;
    LaunchShape launch{};
    bool has_launch = false;
    bool left_out = false;
    bool is_named = false;
    bool damaged = false;
  };
  struct Detail {
    std::uint32_t key;
    std::uint32_t value;
    bool for_named;
  };

  const KinetoOptions& options_;
  KinetoEvents& events_;
  Field field_ = Field::other;
  bool detail_ = false;
  bool detail_is_for_named_ = false;
  std::uint32_t detail_key_ = 0;
  Event event_;
  std::vector<Detail> details_;
};

}  // namespace prism
