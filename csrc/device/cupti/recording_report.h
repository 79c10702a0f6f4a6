// What a recording counted, and as JSON. Internal to csrc/device/cupti.
#pragma once

#include <cstdint>
#include <string>

#include "device/cupti/join.h"
#include "device/cupti/rows.h"

namespace prism::device::cupti {

struct RecordingCounts {
  JoinCounts join;
  std::uint32_t cupti_version = 0;
  std::uint64_t calls = 0, work = 0;  // records read
  std::uint64_t unknown_records = 0, damaged_buffers = 0;
  std::uint64_t dropped_records = 0, refused_buffers = 0, refused_before = 0;
  std::uint64_t untimed_notes = 0;
  std::int64_t clock_offset_ns = 0, drift_ns = 0;
  std::uint64_t clock_width_ns = 0;

  void read(const Rows& rows) noexcept;
};

std::string to_json(const RecordingCounts& counts);

}  // namespace prism::device::cupti
