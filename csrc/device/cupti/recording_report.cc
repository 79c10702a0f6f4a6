#include "device/cupti/recording_report.h"

#include <type_traits>

namespace prism::device::cupti {

void RecordingCounts::read(const Rows& rows) noexcept {
  calls = rows.calls.size();
  work = rows.work.size();
  unknown_records = rows.unknown_records;
  damaged_buffers = rows.damaged_buffers;
}

std::string to_json(const RecordingCounts& counts) {
  std::string out;
  const auto field = [&out](const char* name, auto value) {
    out += out.empty() ? "{" : ", ";
    out += '"';
    out += name;
    out += "\": " + std::to_string(value);
  };
  const JoinCounts& join = counts.join;
  field("cupti_version", counts.cupti_version);
  field("calls", counts.calls);
  field("device_records", counts.work);
  field("kernels", join.kernels);
  field("copies", join.copies);
  field("sets", join.sets);
  field("launches_of_communication", join.launches_of_communication);
  field("dropped_records", counts.dropped_records);
  field("refused_buffers", counts.refused_buffers);
  field("damaged_buffers", counts.damaged_buffers);
  field("unknown_records", counts.unknown_records);
  field("orphans", join.orphans);
  field("lost_work", join.lost_work);
  field("untimed", join.untimed);
  field("untold_syncs", join.untold_syncs);
  field("guessed_callbacks", join.guessed_callbacks);
  field("other_threads", join.other_threads);
  field("inside_launches", join.inside_launches);
  field("failed_calls", join.failed_calls);
  field("gap_ns", join.gap_ns);
  field("early_ns", join.early_ns);
  field("untimed_notes", counts.untimed_notes);
  field("clock_offset_ns", counts.clock_offset_ns);
  field("clock_drift_ns", counts.drift_ns);
  field("clock_width_ns", counts.clock_width_ns);
  return out + "}";
}

}  // namespace prism::device::cupti
