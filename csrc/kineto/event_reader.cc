#include "kineto/event_reader.h"

#include <algorithm>
#include <limits>

#include "kineto/decimal.h"

namespace prism {
namespace {

using Text = std::string_view;
using Field = EventReader::Field;

Field event_field(Text key) noexcept {
  if (key == "ph") return Field::ph;
  if (key == "cat") return Field::cat;
  if (key == "name") return Field::name;
  if (key == "tid") return Field::tid;
  if (key == "ts") return Field::ts;
  if (key == "dur") return Field::dur;
  if (key == "args") return Field::args;
  return Field::other;
}

Field argument_field(Text key) noexcept {
  if (key == "correlation") return Field::correlation;
  if (key == "device") return Field::device;
  if (key == "stream") return Field::stream;
  if (key == "bytes") return Field::bytes;
  if (key == "grid") return Field::grid;
  if (key == "block") return Field::block;
  if (key == "shared memory") return Field::shared;
  return Field::other;
}

}  // namespace

void EventReader::begin() {
  event_ = Event{};
  details_.clear();
  field_ = Field::other;
  detail_ = false;
}

void EventReader::key(Text key) {
  field_ = event_field(key);
  detail_ = false;
}

void EventReader::member(Text text) {
  if (field_ == Field::ph) {
    event_.complete = text == "X";
    return;
  }
  if (!event_.complete || event_.left_out) return;
  switch (field_) {
    case Field::cat:
      event_.category = events_.strings.intern(text);
      event_.left_out = options_.left_out.contains(text);
      break;
    case Field::name:
      event_.name = events_.strings.intern(text);
      event_.is_named = options_.named.contains(text);
      break;
    case Field::tid:
      event_.thread = events_.strings.intern(text);
      break;
    case Field::ts:
      event_.start_ns = nanoseconds(text);
      event_.damaged |= !event_.start_ns;
      break;
    case Field::dur:
      event_.duration_ns = nanoseconds(text);
      event_.damaged |= !event_.duration_ns || *event_.duration_ns < 0;
      break;
    default:
      break;
  }
}

void EventReader::argument(Text key) {
  field_ = argument_field(key);
  detail_ = false;
  if (field_ != Field::other || !event_.complete || event_.left_out) return;
  const bool for_all = options_.details.contains(key);
  const bool for_named =
      !for_all && (event_.is_named || !event_.name) && options_.named_keys.contains(key);
  detail_ = for_all || for_named;
  detail_is_for_named_ = for_named;
  if (detail_) detail_key_ = events_.strings.intern(key);
}

void EventReader::argument_value(Text text) {
  if (detail_) {
    details_.push_back({detail_key_, events_.strings.intern(text), detail_is_for_named_});
    return;
  }
  std::int64_t* place = nullptr;
  switch (field_) {
    case Field::correlation:
      place = &event_.correlation;
      break;
    case Field::device:
      place = &event_.device;
      break;
    case Field::stream:
      place = &event_.stream;
      break;
    case Field::bytes:
      place = &event_.bytes;
      break;
    case Field::shared:
      set_launch(6, text);
      return;
    default:
      return;
  }
  *place = std::max(whole_number(text).value_or(KinetoEvents::none), KinetoEvents::none);
}

void EventReader::set_launch(std::size_t at, Text text) {
  const auto found = whole_number(text);
  if (!found || *found < 0 || *found > std::numeric_limits<std::uint32_t>::max()) return;
  event_.launch[at] = static_cast<std::uint32_t>(*found);
  event_.has_launch = event_.has_launch || at < 6;
}

bool EventReader::end() {
  if (!event_.complete || event_.left_out) {
    ++events_.others;
    return true;
  }
  if (event_.damaged || !event_.name || !event_.start_ns) {
    ++events_.damaged;
    return true;
  }
  const std::size_t at = events_.name.size();
  if (at == std::numeric_limits<std::uint32_t>::max()) return false;
  events_.name.push_back(*event_.name);
  events_.category.push_back(event_.category);
  events_.thread.push_back(event_.thread);
  events_.start_ns.push_back(*event_.start_ns);
  events_.duration_ns.push_back(event_.duration_ns.value_or(0));
  events_.correlation.push_back(event_.correlation);
  events_.device.push_back(event_.device);
  events_.stream.push_back(event_.stream);
  events_.bytes.push_back(event_.bytes);
  const auto id = static_cast<std::uint32_t>(at);
  if (event_.has_launch) {
    events_.launched.push_back(id);
    events_.launches.push_back(event_.launch);
  }
  for (const Detail& detail : details_) {
    if (detail.for_named && !event_.is_named) continue;  // the name came behind its arguments
    events_.detailed.push_back(id);
    events_.detail_key.push_back(detail.key);
    events_.detail_value.push_back(detail.value);
  }
  return true;
}

}  // namespace prism
