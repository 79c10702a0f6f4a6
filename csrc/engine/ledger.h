// Where the time of one rank goes. Intervals may come in any order; each instant counts once, as
// the first of: compute, transfer, waiting, host callback, and host for what none of them covers.
#pragma once

#include <cstdint>
#include <memory>
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
    bool one_stream = false;  // all intervals are on one stream: they come in order
  };

  // rows: one an iteration and one for what comes after the last; they outlive the ledger.
  Ledger(Needs needs, std::span<Unions> rows) : rows_(rows), needs_(needs) {
    if (needs.compute_overlaps || needs.transfer_overlaps || needs.callbacks) {
      rare_ = std::make_unique<Rare>();
    }
  }

  void compute(std::int64_t begin, std::int64_t end) {
    if (begin < boundary_ || held_ != 0) return slow(Kind::compute, begin, end);
    add_compute(rows_[open_], begin, end);
  }
  // A launch that was ready at `arrive` and ended at `end`; its transfers by rising start.
  void communication(std::int64_t arrive, std::span<const Span> transfers, std::int64_t end) {
    if (arrive < boundary_ || held_ != 0) {
      for (const Span& t : transfers) slow(Kind::transfer, t.begin, t.end);
      return slow(Kind::waiting, arrive, end);
    }
    Unions& row = rows_[open_];
    for (const Span& t : transfers) add_transfer(row, t.begin, t.end);
    add_waiting(row, arrive, end);
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
    compute_transfer_.add(from, end, needs_.one_stream);
    device_.add(from, end, needs_.one_stream);
    if (rare_ == nullptr) return true;
    if (needs_.compute_overlaps) rare_->compute.add(from, end, needs_.one_stream);
    if (needs_.callbacks) rare_->all.add(from, end, needs_.one_stream);
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
  // It never ends. What waited for its end belongs to the iteration that lasts.
  void drop_held_iteration();
  void drop_held_iterations() {
    while (held_ != 0) drop_held_iteration();
  }
  std::uint32_t iterations() const noexcept { return open_; }  // closed so far

  void prefetch() const noexcept { __builtin_prefetch(&rows_[open_]); }
  bool full() const noexcept {
    std::size_t size = compute_transfer_.size() + device_.size();
    if (rare_ != nullptr)
      size += rare_->compute.size() + rare_->transfer.size() + rare_->all.size();
    return size > limit_;
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
    if (needs_.callbacks && rare_->all.end() > t) t = rare_->all.end();
    return t;
  }
  void add_compute(Unions& row, std::int64_t begin, std::int64_t end) {
    row.compute +=
        needs_.compute_overlaps ? rare_->compute.add(begin, end, needs_.one_stream) : end - begin;
    row.compute_transfer += compute_transfer_.add(begin, end, needs_.one_stream);
    row.device += device_.add(begin, end, needs_.one_stream);
    if (needs_.callbacks) row.all += rare_->all.add(begin, end, needs_.one_stream);
  }
  void add_transfer(Unions& row, std::int64_t begin, std::int64_t end) {
    row.transfer +=
        needs_.transfer_overlaps ? rare_->transfer.add(begin, end, needs_.one_stream) : end - begin;
    row.compute_transfer += compute_transfer_.add(begin, end, needs_.one_stream);
  }
  // Also the transfers that end the waiting.
  void add_waiting(Unions& row, std::int64_t begin, std::int64_t end) {
    row.device += device_.add(begin, end, needs_.one_stream);
    if (needs_.callbacks) row.all += rare_->all.add(begin, end, needs_.one_stream);
  }
  // Any interval: split where iterations end, kept back while one of them is not known.
  void slow(Kind kind, std::int64_t begin, std::int64_t end);
  void add(Unions& row, Kind kind, std::int64_t begin, std::int64_t end);

  // For needs that most programs do not have.
  struct Rare {
    IntervalSet compute, transfer, all;
  };

  std::span<Unions> rows_;
  std::int64_t boundary_ = 0;
  std::uint32_t held_ = 0;
  std::uint32_t open_ = 0;  // the iteration that lasts
  IntervalSet compute_transfer_, device_;
  std::unique_ptr<Rare> rare_;
  Needs needs_;
  std::uint32_t limit_ = 32;
  std::vector<Entry> waiting_entries_;
};

}  // namespace prism::engine
