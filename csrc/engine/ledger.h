// Where the time of one rank goes. Intervals may come in any order; each instant counts once, as
// the first of: compute, transfer, waiting, host callback, and host for what none of them covers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/interval_set.h"
#include "engine/replay.h"

namespace prism::engine {

// Lengths of unions within one iteration of a rank.
struct Unions {
  std::int64_t compute = 0;
  std::int64_t transfer = 0;
  std::int64_t compute_transfer = 0;
  std::int64_t device = 0;  // and waiting
  std::int64_t all = 0;     // and host callbacks (counted only where there are any)
  std::int64_t end_ns = 0;  // of the iteration
};

class Ledger {
 public:
  // What the rank's program can do decides which unions need more than a sum.
  struct Needs {
    bool compute_overlaps = false;   // more than one stream computes
    bool transfer_overlaps = false;  // more than one stream or part of a launch transfers
    bool callbacks = false;
  };

  // rows: one an iteration and one for what comes after the last; they outlive the ledger.
  Ledger(Needs needs, std::span<Unions> rows) noexcept : needs_(needs), rows_(rows) {}

  void compute(std::int64_t begin, std::int64_t end) {
    if (begin < boundary_ || held_ != 0) return slow(Kind::compute, begin, end);
    add_compute(rows_[open_], begin, end);
  }
  // A transfer from start to end whose rank arrived at `arrive`.
  void communication(std::int64_t arrive, std::int64_t start, std::int64_t end) {
    if (arrive < boundary_ || held_ != 0) {
      slow(Kind::transfer, start, end);
      return slow(Kind::waiting, arrive, start);
    }
    Unions& row = rows_[open_];
    add_transfer(row, start, end);
    add_waiting(row, arrive, start);
  }
  void callback(std::int64_t begin, std::int64_t end) { slow(Kind::callback, begin, end); }

  // Kernels of one stream with gaps between them, `busy` in all within [begin, end): as adding
  // each, if nothing known overlaps them and nothing before `host` can come any more. False: the
  // caller has to add them one by one.
  bool compute_with_gaps(std::int64_t begin, std::int64_t end, std::int64_t busy,
                         std::int64_t host) {
    if (begin < boundary_ || held_ != 0 || begin < latest_end()) return false;
    Unions& row = rows_[open_];
    row.compute += busy;
    row.compute_transfer += busy;
    row.device += busy;
    if (needs_.callbacks) row.all += busy;
    const std::int64_t from = begin > host ? begin : host;
    if (needs_.compute_overlaps) compute_.add(from, end);
    compute_transfer_.add(from, end);
    device_.add(from, end);
    if (needs_.callbacks) all_.add(from, end);
    return true;
  }

  // Ends the iteration at `end`, the latest clock of the rank.
  void close_iteration(std::int64_t end) {
    rows_[open_].end_ns = end;
    boundary_ = end;
    ++open_;
  }
  // Between hold and close_held_iteration, an iteration is to be closed whose end is not known yet:
  // what is added waits, as it may belong to either side.
  void hold() noexcept { ++held_; }
  void close_held_iteration(std::int64_t end);
  bool held() const noexcept { return held_ != 0; }

  bool full() const noexcept {
    return compute_.size() + transfer_.size() + compute_transfer_.size() + device_.size() +
               all_.size() >
           limit_;
  }
  // Nothing that starts before `frontier` comes any more.
  void forget(std::int64_t frontier);

  // What the unions mean, for an iteration of this ledger that began at `begin`.
  TimeSplit split(const Unions& row, std::int64_t begin) const noexcept;

 private:
  enum class Kind : std::uint8_t { compute, transfer, waiting, callback };
  struct Entry {
    Kind kind;
    Span span;
  };

  std::int64_t latest_end() const noexcept {
    std::int64_t t = device_.end();
    if (needs_.callbacks && all_.end() > t) t = all_.end();
    return t;
  }
  void add_compute(Unions& row, std::int64_t begin, std::int64_t end) {
    row.compute += needs_.compute_overlaps ? compute_.add(begin, end) : end - begin;
    row.compute_transfer += compute_transfer_.add(begin, end);
    row.device += device_.add(begin, end);
    if (needs_.callbacks) row.all += all_.add(begin, end);
  }
  void add_transfer(Unions& row, std::int64_t begin, std::int64_t end) {
    row.transfer += needs_.transfer_overlaps ? transfer_.add(begin, end) : end - begin;
    row.compute_transfer += compute_transfer_.add(begin, end);
    add_waiting(row, begin, end);
  }
  void add_waiting(Unions& row, std::int64_t begin, std::int64_t end) {
    row.device += device_.add(begin, end);
    if (needs_.callbacks) row.all += all_.add(begin, end);
  }
  // Any interval: split where iterations end, kept back while one of them is not known.
  void slow(Kind kind, std::int64_t begin, std::int64_t end);
  void add(Unions& row, Kind kind, std::int64_t begin, std::int64_t end);

  Needs needs_;
  std::uint32_t held_ = 0;
  std::uint32_t open_ = 0;  // the iteration that lasts
  std::uint32_t limit_ = 32;
  std::int64_t boundary_ = 0;
  std::span<Unions> rows_;
  IntervalSet compute_, transfer_, compute_transfer_, device_, all_;
  std::vector<Entry> waiting_entries_;
};

}  // namespace prism::engine
