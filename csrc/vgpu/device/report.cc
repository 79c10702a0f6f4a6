// What a rank's report holds beside its graph.
#include <algorithm>
#include <string>

#include "vgpu/device/impl.h"

namespace prism::vgpu {
namespace {

void append_string(std::string& out, std::string_view text) {
  constexpr char digits[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte >= 0x7f) {
      out += "\\u00";
      out += digits[byte >> 4];
      out += digits[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

void append_field(std::string& out, std::string_view name, std::int64_t value) {
  append_string(out, name);
  out += ": " + std::to_string(value);
}

constexpr std::string_view rules[] = {"written", "zero", "large", "supplied"};

}  // namespace

std::string Session::report() const {
  const Impl& impl = *impl_;
  const std::lock_guard lock(impl.mutex);
  std::string out = "{\"unimplemented\": [";
  bool first = true;
  const auto next = [&] {
    if (!first) out += ", ";
    first = false;
  };
  for (const auto& [name, calls] : impl.unimplemented) {
    next();
    out += "{\"library\": ";
    append_string(out, name.first);
    out += ", \"function\": ";
    append_string(out, name.second);
    out += ", ";
    append_field(out, "calls", static_cast<std::int64_t>(calls));
    out += "}";
  }

  std::uint64_t launches = 0;
  std::map<std::string_view, std::uint64_t> unknown;
  for (std::size_t i = 0; i < impl.kernels.size(); ++i) {
    const KernelInfo& kernel = impl.kernels[i];
    launches += kernel.launches;
    if (kernel.provenance == Provenance::unknown) unknown[impl.kernels.name(i)] += kernel.launches;
  }
  out += "], ";
  append_field(out, "launches", static_cast<std::int64_t>(launches));
  out += ", \"unknown_kernels\": [";
  first = true;
  for (const auto& [name, count] : unknown) {
    next();
    out += "{\"name\": ";
    append_string(out, name);
    out += ", ";
    append_field(out, "launches", static_cast<std::int64_t>(count));
    out += ", \"share\": " +
           std::to_string(static_cast<double>(count) /
                          static_cast<double>(std::max<std::uint64_t>(launches, 1))) +
           "}";
  }

  out += "], \"reads\": {";
  first = true;
  for (std::size_t rule = 0; rule < std::size(rules); ++rule) {
    next();
    append_string(out, rules[rule]);
    out += ": {";
    append_field(out, "reads", static_cast<std::int64_t>(impl.reads[rule].reads));
    out += ", ";
    append_field(out, "bytes", impl.reads[rule].bytes);
    out += "}";
  }

  out += "}, \"guessed_members\": [";
  first = true;
  for (const Communicator& communicator : impl.communicators) {
    if (!communicator.guessed) continue;
    next();
    append_string(out, communicator.open.name);
  }

  out += "], \"memory\": {";
  append_field(out, "total_bytes", impl.options.device.memory_bytes);
  out += ", ";
  append_field(out, "context_bytes", impl.options.device.context_bytes);
  out += ", ";
  append_field(out, "communicator_bytes", impl.communicator_bytes);
  out += ", ";
  append_field(out, "peak_device_bytes", impl.peak_device_bytes);
  out += "}, \"out_of_memory\": ";
  if (impl.failed.count == 0) {
    out += "null";
  } else {
    out += "{";
    append_field(out, "asked_bytes", impl.failed.asked_bytes);
    out += ", ";
    append_field(out, "held_bytes", impl.failed.held_bytes);
    out += ", ";
    append_field(out, "free_bytes", impl.failed.free_bytes);
    out += ", ";
    append_field(out, "op", static_cast<std::int64_t>(impl.failed.op));
    out += ", ";
    append_field(out, "count", static_cast<std::int64_t>(impl.failed.count));
    out += "}";
  }
  return out + "}";
}

}  // namespace prism::vgpu
