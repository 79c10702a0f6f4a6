// Reads Kineto traces: JSON, gzip or not, as torch's profiler writes it. Holds what it returns and
// a buffer; never the text.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "kineto/events.h"

namespace prism {

// Texts, looked up without a copy.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept {
    return std::hash<std::string_view>{}(text);
  }
};
using TextSet = std::unordered_set<std::string, TextHash, std::equal_to<>>;

struct KinetoOptions {
  TextSet left_out;    // categories
  TextSet details;     // arguments kept of every event
  TextSet named;       // events of these names keep in addition ...
  TextSet named_keys;  // ... these arguments
};

// `poll` is called every few MB of text, and may throw.
// TraceError: the file cannot be read, is no JSON or no trace, or holds more than 2^32 - 1 events.
KinetoEvents read_kineto(const std::string& path, const KinetoOptions& options,
                         const std::function<void()>& poll);

}  // namespace prism
