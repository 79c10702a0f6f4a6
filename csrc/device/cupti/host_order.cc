#include "device/cupti/host_order.h"

#include <algorithm>
#include <tuple>

namespace prism::device::cupti {
namespace {

constexpr std::uint32_t not_ready = 600;  // of a query, in the runtime and in the driver

bool failed(const ApiRow& call) noexcept {
  const bool asks = call.role == CallRole::event_query || call.role == CallRole::stream_query;
  return call.result != 0 && !(asks && call.result == not_ready);
}

}  // namespace

// When which thread was inside a launch of communication, or in the door's own calls.
struct HostOrder::Spans {
  struct Span {
    std::uint64_t begin = 0, end = 0;
    std::uint32_t note = 0;
  };
  std::unordered_map<std::uint32_t, std::vector<Span>> of_thread;

  explicit Spans(const Notes& notes) {
    for (std::uint32_t i = 0; i < notes.notes.size(); ++i) {
      const Note& note = notes.notes[i];
      if (note.kind != Note::Kind::communicate && note.kind != Note::Kind::own) continue;
      of_thread[note.thread].push_back({note.begin, note.end, i});
    }
    for (auto& [thread, spans] : of_thread) {
      std::sort(spans.begin(), spans.end(),
                [](const Span& a, const Span& b) { return a.begin < b.begin; });
    }
  }
  // By the middle of the call: the two clocks agree to some hundred ns only.
  const Span* around(const ApiRow& call) const noexcept {
    const auto found = of_thread.find(call.thread);
    if (found == of_thread.end()) return nullptr;
    const std::uint64_t middle = call.start + (call.end - call.start) / 2;
    const auto next =
        std::upper_bound(found->second.begin(), found->second.end(), middle,
                         [](std::uint64_t at, const Span& span) { return at < span.begin; });
    if (next == found->second.begin() || middle > (next - 1)->end) return nullptr;
    return &*(next - 1);
  }
};

HostOrder::HostOrder(const Rows& rows, const Notes& notes, const JoinOptions& options,
                     JoinCounts& counts)
    : rows_(rows), notes_(notes), options_(options), counts_(counts) {
  place_calls(Spans(notes));
  share_work();
  lay_out();
}

void HostOrder::place(std::uint32_t call, Owner owner) {
  owners_.try_emplace(rows_.calls[call].correlation, owner);
}

void HostOrder::place_calls(const Spans& spans) {
  std::vector<std::uint32_t> order(rows_.calls.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  // By thread and begin, the outer of two first.
  std::sort(order.begin(), order.end(), [this](std::uint32_t a, std::uint32_t b) {
    const ApiRow &x = rows_.calls[a], &y = rows_.calls[b];
    return std::tuple(x.thread, x.start, y.end, x.side, a) <
           std::tuple(y.thread, y.start, x.end, y.side, b);
  });
  owners_.reserve(order.size());
  kept_.reserve(order.size());
  std::uint32_t outer = none;
  bool program = true;
  for (const std::uint32_t i : order) {
    const ApiRow& call = rows_.calls[i];
    const ApiRow* before = outer == none ? nullptr : &rows_.calls[outer];
    const bool new_thread = before == nullptr || before->thread != call.thread;
    if (!new_thread && call.start < before->end) {  // the driver's, below the runtime's
      place(i, owners_.at(before->correlation));
      continue;
    }
    if (new_thread) {
      program = !options_.is_program_thread || options_.is_program_thread(call.thread);
    }
    outer = i;
    if (!program) {
      ++counts_.other_threads;
      place(i, {});
    } else if (const auto* span = spans.around(call)) {
      ++counts_.inside_launches;
      place(i, {span->note, What::note});
    } else if (failed(call) || call.start > options_.end || call.role == CallRole::none) {
      counts_.failed_calls += failed(call) ? 1 : 0;
      place(i, {});
    } else {
      place(i, {i, What::call});
      kept_.push_back(i);
    }
  }
  const auto tell = [this](const auto& told, auto& by_call) {
    for (std::uint32_t i = 0; i < told.size(); ++i) {
      const auto found = owners_.find(told[i].correlation);
      if (found == owners_.end() || found->second.what != What::call) continue;
      if (found->second.index != none) by_call.try_emplace(found->second.index, i);
    }
  };
  tell(rows_.syncs, syncs_);
  tell(rows_.events, events_);
  tell(rows_.memory, memory_);
}

void HostOrder::share_work() {
  for (std::uint32_t i = 0; i < rows_.work.size(); ++i) {
    const WorkRow& work = rows_.work[i];
    const auto found = owners_.find(work.correlation);
    if (found == owners_.end()) {
      // Before the recording began: of no call that is known.
      if (work.start < options_.origin || work.start > options_.end) continue;
      ++counts_.orphans;
      orphans_.push_back(i);
    } else if (found->second.index != none) {
      auto& shares = found->second.what == What::call ? of_calls_ : of_notes_;
      shares.push_back({found->second.index, i});
    }
  }
  const auto by_begin = [this](const Share& a, const Share& b) {
    return std::tuple(a.owner, rows_.work[a.work].start, rows_.work[a.work].end, a.work) <
           std::tuple(b.owner, rows_.work[b.work].start, rows_.work[b.work].end, b.work);
  };
  std::sort(of_calls_.begin(), of_calls_.end(), by_begin);
  std::sort(of_notes_.begin(), of_notes_.end(), by_begin);
  for (const auto* shares : {&of_calls_, &of_notes_}) {
    for (const Share& share : *shares) works_.push_back(share.work);
  }
  works_.insert(works_.end(), orphans_.begin(), orphans_.end());
}

void HostOrder::lay_out() {
  items_.reserve(kept_.size() + notes_.notes.size() + orphans_.size());
  for (const std::uint32_t i : kept_) items_.push_back({rows_.calls[i].end, i, What::call});
  for (std::uint32_t i = 0; i < notes_.notes.size(); ++i) {
    const Note& note = notes_.notes[i];
    if (note.kind == Note::Kind::own || note.begin > options_.end) continue;
    items_.push_back({note.end, i, What::note});
  }
  for (std::uint32_t i = 0; i < orphans_.size(); ++i) {
    items_.push_back({rows_.work[orphans_[i]].start, i, What::orphan});
  }
  std::stable_sort(items_.begin(), items_.end(),
                   [](const Item& a, const Item& b) { return a.at < b.at; });
}

std::span<const std::uint32_t> HostOrder::work_of(const Item& item) const noexcept {
  const std::span<const std::uint32_t> all = works_;
  const std::size_t notes_begin = of_calls_.size();
  const std::size_t orphans_begin = notes_begin + of_notes_.size();
  if (item.what == What::orphan) return all.subspan(orphans_begin + item.index, 1);
  const auto& shares = item.what == What::call ? of_calls_ : of_notes_;
  const auto before = [](const Share& share, std::uint32_t owner) { return share.owner < owner; };
  const auto first = std::lower_bound(shares.begin(), shares.end(), item.index, before);
  auto last = first;
  while (last != shares.end() && last->owner == item.index) ++last;
  const std::size_t begin = item.what == What::call ? 0 : notes_begin;
  return all.subspan(begin + static_cast<std::size_t>(first - shares.begin()),
                     static_cast<std::size_t>(last - first));
}

const SyncRow* HostOrder::sync_of(std::uint32_t call) const noexcept {
  const auto found = syncs_.find(call);
  return found == syncs_.end() ? nullptr : &rows_.syncs[found->second];
}

const EventRow* HostOrder::event_of(std::uint32_t call) const noexcept {
  const auto found = events_.find(call);
  return found == events_.end() ? nullptr : &rows_.events[found->second];
}

const MemoryRow* HostOrder::memory_of(std::uint32_t call) const noexcept {
  const auto found = memory_.find(call);
  return found == memory_.end() ? nullptr : &rows_.memory[found->second];
}

}  // namespace prism::device::cupti
