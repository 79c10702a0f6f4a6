#include "kineto/reader.h"

#include <rapidjson/error/en.h>
#include <rapidjson/reader.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <string_view>

#include "base/error.h"
#include "kineto/char_stream.h"
#include "kineto/event_reader.h"
#include "kineto/text_source.h"

namespace prism {
namespace {

constexpr std::size_t most_header_bytes = std::size_t{1} << 28;
constexpr int most_depth = 1000;

using Text = std::string_view;
using Field = EventReader::Field;

// Follows the text: top level, list of events, event, its arguments; what is kept whole goes
// through a writer.
class Handler {
 public:
  Handler(const KinetoOptions& options, KinetoEvents& events, std::uint64_t& tokens)
      : events_(events), event_(options, events), tokens_(tokens) {}

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
    ++tokens_;
    if (copying_) return writer_.String(text, length) && within_limits();
    return value({text, length});
  }
  bool Key(const char* text, rapidjson::SizeType length, bool) {
    ++tokens_;
    if (copying_) return writer_.Key(text, length) && within_limits();
    const Text key(text, length);
    switch (place_) {
      case Place::top:
        top_key_.assign(key);
        break;
      case Place::event:
        event_.key(key);
        break;
      case Place::args:
        event_.argument(key);
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
    ++tokens_;
    if (copying_) {
      return writer_.RawValue(text.data(), text.size(), rapidjson::kNumberType) && within_limits();
    }
    if (place_ == Place::top) {
      events_.header.emplace_back(top_key_, text);
      return true;
    }
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
        event_.member(text);
        return true;
      case Place::args:
        event_.argument_value(text);
        return true;
      case Place::shape:
        if (shape_at_ < shape_end_) event_.set_launch(shape_at_++, text);
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

  bool start(bool object) {
    ++tokens_;
    if (++depth_ > most_depth) return fail("JSON nested more than 1,000 deep found");
    if (copying_) return (object ? writer_.StartObject() : writer_.StartArray()) && within_limits();
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
        event_.begin();
        return true;
      case Place::event:
        if (object && event_.field() == Field::args) {
          place_ = Place::args;
          event_.leave_arguments();
          return true;
        }
        return skip();
      case Place::args:
        if (event_.keeps_whole()) return begin_copy(object);
        if (!object && (event_.field() == Field::grid || event_.field() == Field::block)) {
          shape_at_ = event_.field() == Field::grid ? 0 : 3;
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
    ++tokens_;
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
        event_.leave_arguments();
        return true;
      case Place::event:
        place_ = Place::list;
        return event_.end() || fail("more than 2^32 - 1 events found");
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
      event_.argument_value(text);
    }
  }

  KinetoEvents& events_;
  EventReader event_;
  std::uint64_t& tokens_;
  Place place_ = Place::outside;
  Place before_ = Place::outside;
  int depth_ = 0;
  int skipped_ = 0;  // the depth from which on all is skipped, or copied; 0: nothing is
  int copying_ = 0;
  bool has_events_ = false;
  std::size_t shape_at_ = 0;
  std::size_t shape_end_ = 0;
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
  std::uint64_t tokens = 0;
  CharStream stream(source, tokens, poll);
  Handler handler(options, events, tokens);
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
  if (!stream.ended()) {
    throw TraceError(path + ": a zero byte found" + place(stream.Tell()) +
                     ", behind the JSON text; expected its end");
  }
  if (!handler.has_events()) {
    throw TraceError(path + ": no traceEvents found, expected a trace of torch's profiler");
  }
  return events;
}

}  // namespace prism
