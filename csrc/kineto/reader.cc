#include "kineto/reader.h"

#include <rapidjson/error/en.h>
#include <rapidjson/reader.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "kineto/decimal.h"
#include "kineto/text_source.h"

namespace prism {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 16;
constexpr std::uint64_t poll_bytes = std::uint64_t{1} << 22;
constexpr std::size_t most_header_bytes = std::size_t{1} << 28;
constexpr int most_depth = 1000;

// What RapidJSON asks of a stream it reads from.
class Stream {
 public:
  using Ch = char;

  Stream(TextSource& source, const std::function<void()>& poll) : source_(source), poll_(poll) {
    fill();
  }
  Ch Peek() const noexcept { return *at_; }
  Ch Take() {
    const Ch c = *at_;
    if (++at_ == end_) fill();
    return c;
  }
  std::size_t Tell() const noexcept {
    return source_.offset() - (ended_ ? 0 : static_cast<std::size_t>(end_ - at_));
  }
  // Only for streams that are written to.
  Ch* PutBegin() { return nullptr; }
  void Put(Ch) {}
  void Flush() {}
  std::size_t PutEnd(Ch*) { return 0; }

 private:
  void fill() {
    if (source_.offset() >= next_poll_) {
      poll_();
      next_poll_ = source_.offset() + poll_bytes;
    }
    const std::size_t got = source_.read(buffer_);
    if (got == 0) {
      buffer_[0] = '\0';  // RapidJSON's end; whoever takes it finds it again
      at_ = buffer_.data();
      end_ = at_ + 1;
      ended_ = true;
      return;
    }
    at_ = buffer_.data();
    end_ = at_ + got;
  }

  TextSource& source_;
  const std::function<void()>& poll_;
  std::uint64_t next_poll_ = poll_bytes;
  std::vector<char> buffer_ = std::vector<char>(buffer_bytes);
  const char* at_ = nullptr;
  const char* end_ = nullptr;
  bool ended_ = false;
};

using Text = std::string_view;

// Keys of an event and of its arguments that have a place of their own.
enum class Field : std::uint8_t {
  other,
  ph,
  cat,
  name,
  pid,
  tid,
  ts,
  dur,
  args,
  correlation,
  external,
  number,
  device,
  stream,
  bytes,
  grid,
  block,
  shared,
};

Field event_field(Text key) noexcept {
  if (key == "ph") return Field::ph;
  if (key == "cat") return Field::cat;
  if (key == "name") return Field::name;
  if (key == "pid") return Field::pid;
  if (key == "tid") return Field::tid;
  if (key == "ts") return Field::ts;
  if (key == "dur") return Field::dur;
  if (key == "args") return Field::args;
  return Field::other;
}

Field argument_field(Text key) noexcept {
  if (key == "correlation") return Field::correlation;
  if (key == "External id" || key == "external id") return Field::external;
  if (key == "Ev Idx") return Field::number;
  if (key == "device") return Field::device;
  if (key == "stream") return Field::stream;
  if (key == "bytes") return Field::bytes;
  if (key == "grid") return Field::grid;
  if (key == "block") return Field::block;
  if (key == "shared memory") return Field::shared;
  return Field::other;
}

// Follows the text: top level, list of events, event, its arguments; what is kept whole goes
// through a writer.
class Handler {
 public:
  Handler(const KinetoOptions& options, KinetoEvents& events)
      : options_(options), events_(events) {}

  bool has_events() const noexcept { return has_events_; }
  const std::string& trouble() const noexcept { return trouble_; }

  bool Null() { return scalar("null"); }
  bool Bool(bool value) { return scalar(value ? "true" : "false"); }
  bool Int(int value) { return scalar(std::to_string(value)); }
  bool Uint(unsigned value) { return scalar(std::to_string(value)); }
  bool Int64(std::int64_t value) { return scalar(std::to_string(value)); }
  bool Uint64(std::uint64_t value) { return scalar(std::to_string(value)); }
  bool Double(double) { return scalar("null"); }  // NaN and infinities alone come here
  bool RawNumber(const char* text, rapidjson::SizeType length, bool) {
    return scalar({text, length});
  }
  bool String(const char* text, rapidjson::SizeType length, bool) {
    if (copying_) return writer_.String(text, length) && within_limits();
    return value({text, length});
  }
  bool Key(const char* text, rapidjson::SizeType length, bool) {
    if (copying_) return writer_.Key(text, length) && within_limits();
    const Text key(text, length);
    switch (place_) {
      case Place::top:
        top_key_.assign(key);
        break;
      case Place::event:
        field_ = event_field(key);
        break;
      case Place::args:
        argument(key);
        break;
      default:
        break;
    }
    return true;
  }
  bool StartObject() { return start(true); }
  bool EndObject(rapidjson::SizeType) { return end(true); }
  bool StartArray() { return start(false); }
  bool EndArray(rapidjson::SizeType) { return end(false); }

 private:
  enum class Place : std::uint8_t { outside, top, list, event, args, shape, skipped };
  using Writer = rapidjson::Writer<rapidjson::StringBuffer>;

  struct Event {
    bool complete = true;  // as far as is known
    std::optional<std::uint32_t> name;
    std::uint32_t category = 0;
    std::uint32_t process = 0;
    std::uint32_t thread = 0;
    std::optional<std::int64_t> start_ns;
    std::optional<std::int64_t> duration_ns;
    std::int64_t correlation = KinetoEvents::none;
    std::int64_t external = KinetoEvents::none;
    std::int64_t number = KinetoEvents::none;
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

  bool fail(std::string trouble) {
    trouble_ = std::move(trouble);
    return false;
  }

  bool within_limits() {
    if (buffer_.GetSize() <= most_header_bytes) return true;
    return fail("a value of more than 256 MiB found");
  }

  // A number, true, false or null.
  bool scalar(Text text) {
    if (copying_) return writer_.RawValue(text.data(), text.size(), rapidjson::kNumberType);
    return value(text);
  }

  bool value(Text text) {
    switch (place_) {
      case Place::outside:
        return fail("a value found, expected an object or a list of events");
      case Place::top:
        events_.header.emplace_back(top_key_, quoted(text));
        return true;
      case Place::event:
        member(text);
        return true;
      case Place::args:
        argument_value(text);
        return true;
      case Place::shape:
        if (shape_at_ < shape_end_) set_launch(shape_at_++, text);
        return true;
      default:
        return true;
    }
  }

  static std::string quoted(Text text) {
    rapidjson::StringBuffer buffer;
    Writer writer(buffer);
    writer.String(text.data(), static_cast<rapidjson::SizeType>(text.size()));
    return {buffer.GetString(), buffer.GetSize()};
  }

  void member(Text text) {
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
      case Field::pid:
        event_.process = events_.strings.intern(text);
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

  // An argument's key: decides what becomes of its value.
  void argument(Text key) {
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

  void argument_value(Text text) {
    if (detail_) {
      details_of_event_.push_back(
          {detail_key_, events_.strings.intern(text), detail_is_for_named_});
      return;
    }
    std::int64_t* place = nullptr;
    switch (field_) {
      case Field::correlation:
        place = &event_.correlation;
        break;
      case Field::external:
        place = &event_.external;
        break;
      case Field::number:
        place = &event_.number;
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

  void set_launch(std::size_t at, Text text) {
    const auto found = whole_number(text);
    if (!found || *found < 0 || *found > std::numeric_limits<std::uint32_t>::max()) return;
    event_.launch[at] = static_cast<std::uint32_t>(*found);
    event_.has_launch = event_.has_launch || at < 6;
  }

  bool start(bool object) {
    if (++depth_ > most_depth) return fail("JSON nested more than 1,000 deep found");
    if (copying_) return object ? writer_.StartObject() : writer_.StartArray();
    switch (place_) {
      case Place::outside:
        place_ = object ? Place::top : Place::list;
        has_events_ |= !object;
        return true;
      case Place::top:
        if (!object && top_key_ == "traceEvents") {
          place_ = Place::list;
          has_events_ = true;
          return true;
        }
        return begin_copy(object);
      case Place::list:
        if (!object) return skip();
        place_ = Place::event;
        event_ = Event{};
        details_of_event_.clear();
        field_ = Field::other;
        return true;
      case Place::event:
        if (object && field_ == Field::args) {
          place_ = Place::args;
          field_ = Field::other;
          detail_ = false;
          return true;
        }
        return skip();
      case Place::args:
        if (detail_) return begin_copy(object);
        if (!object && (field_ == Field::grid || field_ == Field::block)) {
          shape_at_ = field_ == Field::grid ? 0 : 3;
          shape_end_ = shape_at_ + 3;
          place_ = Place::shape;
          return true;
        }
        return skip();
      default:
        return skip();
    }
  }

  // Until the end of what begins here.
  bool skip() {
    if (skipped_ == 0) {
      skipped_ = depth_;
      before_ = place_;
      place_ = Place::skipped;
    }
    return true;
  }

  bool begin_copy(bool object) {
    copying_ = depth_;
    buffer_.Clear();
    writer_.Reset(buffer_);
    return object ? writer_.StartObject() : writer_.StartArray();
  }

  bool end(bool object) {
    const int depth = depth_--;
    if (copying_ != 0) {
      if (object ? !writer_.EndObject() : !writer_.EndArray()) return false;
      if (depth == copying_) end_copy();
      return true;
    }
    if (skipped_ != 0) {
      if (depth == skipped_) {
        skipped_ = 0;
        place_ = before_;
      }
      return true;
    }
    switch (place_) {
      case Place::shape:
        place_ = Place::args;
        return true;
      case Place::args:
        place_ = Place::event;
        field_ = Field::other;
        return true;
      case Place::event:
        place_ = Place::list;
        return keep();
      case Place::list:
        place_ = depth == 1 ? Place::outside : Place::top;
        return true;
      default:
        place_ = Place::outside;
        return true;
    }
  }

  void end_copy() {
    copying_ = 0;
    const Text text(buffer_.GetString(), buffer_.GetSize());
    if (place_ == Place::top) {
      events_.header.emplace_back(top_key_, text);
    } else {
      argument_value(text);
    }
  }

  bool keep() {
    if (!event_.complete || event_.left_out) {
      ++events_.others;
      return true;
    }
    if (event_.damaged || !event_.name || !event_.start_ns) {
      ++events_.damaged;
      return true;
    }
    const std::size_t at = events_.name.size();
    if (at == std::numeric_limits<std::uint32_t>::max())
      return fail("more than 2^32 - 1 events found");
    events_.name.push_back(*event_.name);
    events_.category.push_back(event_.category);
    events_.process.push_back(event_.process);
    events_.thread.push_back(event_.thread);
    events_.start_ns.push_back(*event_.start_ns);
    events_.duration_ns.push_back(event_.duration_ns.value_or(0));
    events_.correlation.push_back(event_.correlation);
    events_.external.push_back(event_.external);
    events_.number.push_back(event_.number);
    events_.device.push_back(event_.device);
    events_.stream.push_back(event_.stream);
    events_.bytes.push_back(event_.bytes);
    const auto id = static_cast<std::uint32_t>(at);
    if (event_.has_launch) {
      events_.launched.push_back(id);
      events_.launches.push_back(event_.launch);
    }
    for (const Detail& detail : details_of_event_) {
      if (detail.for_named && !event_.is_named) continue;  // the name came behind its arguments
      events_.detailed.push_back(id);
      events_.detail_key.push_back(detail.key);
      events_.detail_value.push_back(detail.value);
    }
    return true;
  }

  const KinetoOptions& options_;
  KinetoEvents& events_;
  Place place_ = Place::outside;
  Place before_ = Place::outside;
  int depth_ = 0;
  int skipped_ = 0;  // the depth from which on all is skipped, or copied; 0: nothing is
  int copying_ = 0;
  bool has_events_ = false;
  Field field_ = Field::other;
  bool detail_ = false;
  bool detail_is_for_named_ = false;
  std::uint32_t detail_key_ = 0;
  std::size_t shape_at_ = 0;
  std::size_t shape_end_ = 0;
  Event event_;
  std::vector<Detail> details_of_event_;
  std::string top_key_;
  std::string trouble_;
  rapidjson::StringBuffer buffer_;
  Writer writer_{buffer_};
};

std::string place(std::uint64_t byte) {
  return " at byte " + std::to_string(byte) + " of its text";
}

}  // namespace

KinetoEvents read_kineto(const std::string& path, const KinetoOptions& options,
                         const std::function<void()>& poll) {
  TextSource source(path);
  KinetoEvents events;
  Stream stream(source, poll);
  Handler handler(options, events);
  rapidjson::Reader reader;
  constexpr unsigned flags = rapidjson::kParseIterativeFlag |
                             rapidjson::kParseNumbersAsStringsFlag | rapidjson::kParseNanAndInfFlag;
  const rapidjson::ParseResult result = reader.Parse<flags>(stream, handler);
  events.text_bytes = source.offset();
  if (!handler.trouble().empty()) {
    throw TraceError(path + ": " + handler.trouble() + place(stream.Tell()) +
                     "; expected a trace of torch's profiler (Chrome's JSON)");
  }
  if (result.IsError()) {
    const bool is_short = result.Offset() + 1 >= source.offset();
    throw TraceError(path + ": " + rapidjson::GetParseError_En(result.Code()) +
                     place(result.Offset()) + ", after " + std::to_string(events.name.size()) +
                     " events; expected a whole JSON text" +
                     (is_short ? ": the file is cut off" : ""));
  }
  if (!handler.has_events()) {
    throw TraceError(path + ": no traceEvents found, expected a trace of torch's profiler");
  }
  return events;
}

}  // namespace prism
