#include "engine/ledger.h"

#include <algorithm>
#include <utility>

namespace prism::engine {

void Ledger::add(Unions& row, Kind kind, std::int64_t begin, std::int64_t end) {
  switch (kind) {
    case Kind::compute:
      return add_compute(row, begin, end);
    case Kind::transfer:
      add_transfer(row, begin, end);
      return add_waiting(row, begin, end);
    case Kind::waiting:
      return add_waiting(row, begin, end);
    case Kind::callback:
      row.all += rare_->all.add(begin, end, needs_.one_stream);
  }
}

void Ledger::slow(Kind kind, std::int64_t begin, std::int64_t end) {
  if (begin >= end) return;
  if (held_ != 0) {
    waiting_entries_.push_back({kind, {begin, end}});
    return;
  }
  std::uint32_t i = open_;
  while (i > 0 && rows_[i - 1].end_ns > begin) --i;
  for (; i < open_ && begin < end; ++i) {
    const std::int64_t cut = std::min(end, rows_[i].end_ns);
    if (begin < cut) {
      add(rows_[i], kind, begin, cut);
      begin = cut;
    }
  }
  if (begin < end) add(rows_[open_], kind, begin, end);
}

void Ledger::close_held_iteration(std::int64_t end) {
  close_iteration(end);
  drop_held_iteration();
}

void Ledger::drop_held_iteration() {
  if (--held_ != 0) return;
  for (const Entry& e : std::exchange(waiting_entries_, {})) slow(e.kind, e.span.begin, e.span.end);
}

void Ledger::forget(std::int64_t frontier) {
  compute_transfer_.forget(frontier);
  device_.forget(frontier);
  if (rare_ != nullptr) {
    rare_->compute.forget(frontier);
    rare_->transfer.forget(frontier);
    rare_->all.forget(frontier);
  }
  if (full()) limit_ *= 2;  // the host is far ahead of the device: look less often
}

TimeSplit Ledger::split(const Unions& row, std::int64_t begin) const noexcept {
  const std::int64_t all = needs_.callbacks ? row.all : row.device;
  TimeSplit t;
  t.compute_ns = row.compute;
  t.communication_ns = row.transfer;
  t.exposed_communication_ns = row.compute_transfer - row.compute;
  t.waiting_ns = row.device - row.compute_transfer;
  t.idle_ns = all - row.device;
  t.host_ns = row.end_ns - begin - all;
  return t;
}

}  // namespace prism::engine
