#include "device/cupti/join.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/cupti/host_order.h"
#include "device/cupti/stream_table.h"
#include "engine/rank_clock.h"

namespace prism::device::cupti {
namespace {

using What = HostOrder::What;

bool is_of_nccl(std::string_view kernel) noexcept {
  return kernel.starts_with("ncclDevKernel") || kernel.starts_with("ncclKernel");
}

class Join {
 public:
  Join(const Rows& rows, const Notes& notes, const JoinOptions& options, JoinCounts& counts,
       Recorder& recorder)
      : rows_(rows),
        notes_(notes),
        options_(options),
        counts_(counts),
        recorder_(recorder),
        host_order_(rows, notes, options, counts),
        streams_(options.default_stream),
        kernels_(rows.kernels.size(), UINT32_MAX),
        records_(1, 0) {
    for (std::uint32_t i = 0; i < rows.streams.size(); ++i) {
      created_.emplace(rows.streams[i].correlation, i);
      // One that was made by no call that is known was there before.
      if (rows.streams[i].flag == abi::StreamFlag::null) streams_.add(rows.streams[i]);
    }
  }

  void run() {
    for (const HostOrder::Item& item : host_order_.items()) {
      switch (item.what) {
        case What::call:
          call(item);
          break;
        case What::note:
          note(item);
          break;
        case What::orphan:
          work(rows_.work[host_order_.work_of(item)[0]], item.at, item.at, false);
          break;
      }
    }
    append_frees();
  }

 private:
  struct Recorded {
    std::uint16_t stream = 0;
    std::uint32_t number = 0;
    std::int64_t time = 0;
  };

  std::int64_t since_origin(std::uint64_t at) const noexcept {
    return at <= options_.origin ? 0 : static_cast<std::int64_t>(at - options_.origin);
  }

  // The host comes to `op` at that time of CUPTI's clock.
  void begin(Op& op, std::uint64_t at) {
    const std::int64_t since = since_origin(at) - clock_.host();
    if (since <= 0) return;  // another thread was waiting until then
    clock_.spend(since);
    if (since <= INT64_C(0xffffffff)) {
      op.host_ns = static_cast<std::uint32_t>(since);
      return;
    }
    Op gap;  // longer than an op's own field holds
    gap.duration_ns = since;
    append(gap);
  }
  void append(const Op& op) {
    if (!frees_.empty()) append_frees();
    recorder_.append(op);
  }

  // Blocks freed with nothing between them: by size, as the virtual GPU records them.
  void append_frees() {
    std::sort(freed_bytes_.begin(), freed_bytes_.end(), std::greater<>());
    for (std::size_t i = 0; i < frees_.size(); ++i) {
      frees_[i].bytes = freed_bytes_[i];
      recorder_.append(frees_[i]);
    }
    frees_.clear();
    freed_bytes_.clear();
  }

  StreamTable::State& stream(StreamKey key) { return streams_.at(key); }
  std::uint16_t index_of(StreamTable::State& state) {
    const std::uint16_t index = streams_.index_of(state);
    clock_.ensure(index);
    if (index >= records_.size()) records_.resize(std::size_t{index} + 1, 0);
    return index;
  }
  // Before work on a stream, or a word about one.
  std::uint16_t enter(StreamKey key) {
    StreamTable::State& state = stream(key);
    order(state);
    return index_of(state);
  }
  void order(StreamTable::State& state) {
    streams_.order(state, [this](StreamTable::State& later, StreamTable::State& before) {
      follow(index_of(later), index_of(before));
    });
  }
  void follow(std::uint16_t later, std::uint16_t before) {
    Op record;
    record.kind = OpKind::event_record;
    record.stream = before;
    ++records_[before];
    append(record);
    Op wait;
    wait.kind = OpKind::event_wait;
    wait.stream = later;
    wait.event_stream = before;
    wait.peer = 1;
    clock_.wait(later, clock_.record(before));
    append(wait);
  }

  // `op`, which the host came to, on its stream between two times; its duration brings the stream
  // to where it was measured.
  void place(Op& op, std::uint64_t begin_ns, std::uint64_t end_ns) {
    const std::int64_t ready = clock_.ready(op.stream);
    const std::int64_t start = since_origin(begin_ns), end = since_origin(end_ns);
    if (start > ready) {
      counts_.gap_ns += start - ready;
    } else {
      counts_.early_ns += ready - start;
    }
    std::int64_t from = ready;
    if (options_.gaps_as_callbacks && start > ready) {
      Op gap;
      gap.kind = OpKind::host_callback;
      gap.flags = static_cast<std::uint8_t>(Provenance::measured);
      gap.stream = op.stream;
      gap.host_ns = std::exchange(op.host_ns, 0);
      gap.duration_ns = start - ready;
      append(gap);
      from = start;
    }
    op.duration_ns = std::max<std::int64_t>(end - from, 0);
    op.flags = static_cast<std::uint8_t>(op.flags & ~Op::provenance_mask);
    op.flags |= static_cast<std::uint8_t>(Provenance::measured);
    clock_.finish(op.stream, std::max(end, from));
  }

  std::uint32_t kernel_id(std::uint32_t row) {
    if (kernels_[row] == UINT32_MAX) {
      kernels_[row] = recorder_.kernel(rows_.kernels[row].name, rows_.kernels[row].shape);
    }
    return kernels_[row];
  }

  // The host waits in a copy until it is done. `now`: the call is one that waits.
  static bool waits_for(const WorkRow& row, bool now) noexcept {
    if (row.kind != OpKind::copy) return false;
    if (now) return row.direction != CopyDirection::device_to_device;
    return row.direction == CopyDirection::host_to_host ||
           (row.direction == CopyDirection::device_to_host && row.pageable);
  }

  // Of a kernel, copy or set, whose call began at `start`; the host came to it at `at`.
  void work(const WorkRow& row, std::uint64_t start, std::uint64_t at, bool now) {
    Op op;
    op.kind = row.kind;
    op.stream = enter(row.stream);
    if (waits_for(row, now)) op.flags |= Op::blocking;
    begin(op, op.is_blocking() ? start : at);
    if (row.kind == OpKind::kernel) {
      ++counts_.kernels;
      op.ref = kernel_id(row.kernel);
    } else {
      op.bytes = row.bytes;
    }
    if (row.kind == OpKind::copy) {
      ++counts_.copies;
      op.detail = static_cast<std::uint8_t>(row.direction);
    }
    counts_.sets += row.kind == OpKind::set ? 1 : 0;
    if (row.start == 0) {
      ++counts_.untimed;  // for no time, of unknown provenance
    } else {
      place(op, row.start, row.end);
    }
    if (op.is_blocking()) clock_.sync_stream(op.stream);
    append(op);
  }

  // When the host has come to a launch: the device may begin before the call returns.
  std::uint64_t effect(std::uint64_t start, std::uint64_t end,
                       std::span<const std::uint32_t> works) const noexcept {
    std::uint64_t at = end;
    for (const std::uint32_t i : works) {
      if (rows_.work[i].start != 0) at = std::min(at, rows_.work[i].start);
    }
    return std::max(at, start);
  }

  void call(const HostOrder::Item& item) {
    const ApiRow& row = rows_.calls[item.index];
    const auto works = host_order_.work_of(item);
    const std::uint64_t at = effect(row.start, row.end, works);
    Op op;
    switch (row.role) {
      case CallRole::launch:
      case CallRole::copy:
      case CallRole::copy_now:
      case CallRole::set:
        counts_.lost_work += works.empty() ? 1 : 0;
        for (const std::uint32_t i : works) {
          work(rows_.work[i], row.start, at, row.role == CallRole::copy_now);
          last_stream_[row.thread] = rows_.work[i].stream;
        }
        return;
      case CallRole::graph_launch:
        return graph(works, at);
      case CallRole::event_record:
        return record(item.index, row.end);
      case CallRole::event_wait:
      case CallRole::event_sync:
      case CallRole::event_query:
        return event(item.index, row);
      case CallRole::stream_sync:
      case CallRole::stream_query: {
        const SyncRow* sync = host_order_.sync_of(item.index);
        if (sync == nullptr) {
          ++counts_.untold_syncs;
          return;
        }
        const bool waits = row.role == CallRole::stream_sync;
        op.kind = waits ? OpKind::stream_sync : OpKind::query;
        op.stream = index_of(stream(sync->stream));
        begin(op, waits ? row.start : row.end);
        if (waits) clock_.sync_stream(op.stream);
        return append(op);
      }
      case CallRole::device_sync:
        return synchronise(row.start);
      case CallRole::host_callback: {
        ++counts_.guessed_callbacks;
        const auto last = last_stream_.find(row.thread);
        op.kind = OpKind::host_callback;
        op.stream = last == last_stream_.end() ? std::uint16_t{0} : enter(last->second);
        begin(op, row.end);
        clock_.run(op.stream, 0);
        return append(op);
      }
      case CallRole::stream_create:
        if (const auto made = created_.find(row.correlation); made != created_.end()) {
          streams_.add(rows_.streams[made->second]);
        }
        return;
      case CallRole::allocate:
      case CallRole::release:
      case CallRole::release_async: {
        const MemoryRow* memory = host_order_.memory_of(item.index);
        if (memory == nullptr) return;
        if (row.role == CallRole::release) synchronise(row.start);
        op.kind = memory->release ? OpKind::release : OpKind::reserve;
        op.bytes = memory->bytes;
        begin(op, row.end);
        return append(op);
      }
      case CallRole::none:
        return;
    }
  }

  void synchronise(std::uint64_t at) {
    Op op;
    op.kind = OpKind::device_sync;
    begin(op, at);
    clock_.sync_device();
    append(op);
  }

  void record(std::uint32_t call, std::uint64_t at) {
    const EventRow* event = host_order_.event_of(call);
    if (event == nullptr) {
      ++counts_.untold_syncs;
      return;
    }
    Op op;
    op.kind = OpKind::event_record;
    op.stream = enter(event->stream);
    begin(op, at);
    recorded_[event->event_sync] = {op.stream, ++records_[op.stream], clock_.record(op.stream)};
    append(op);
  }

  void event(std::uint32_t call, const ApiRow& row) {
    const SyncRow* sync = host_order_.sync_of(call);
    if (sync == nullptr) {
      ++counts_.untold_syncs;
      return;
    }
    const auto found = recorded_.find(sync->event_sync);
    const bool between = row.role == CallRole::event_wait;
    Op op;
    if (between) order(stream(sync->stream));
    if (found == recorded_.end()) return;  // never recorded, or before all this
    if (between) op.stream = index_of(stream(sync->stream));
    const Recorded& of = found->second;
    op.event_stream = of.stream;
    op.peer = records_[of.stream] - of.number + 1;
    if (between) {
      op.kind = OpKind::event_wait;
      begin(op, row.end);
      clock_.wait(op.stream, of.time);
    } else if (row.role == CallRole::event_sync) {
      op.kind = OpKind::event_sync;
      begin(op, row.start);
      clock_.sync_event(of.time);
    } else {
      op.kind = OpKind::query;
      begin(op, row.end);
    }
    append(op);
  }

  // A launch of a captured graph: its nodes, behind the stream of the first, which goes on behind
  // all of them.
  void graph(std::span<const std::uint32_t> works, std::uint64_t at) {
    if (works.empty()) {
      ++counts_.lost_work;
      return;
    }
    const StreamKey main = rows_.work[works[0]].stream;
    Op op;
    op.kind = OpKind::graph_launch;
    op.stream = enter(main);
    begin(op, at);
    append(op);
    std::vector<std::uint16_t> branches;
    for (const std::uint32_t i : works) {
      const std::uint16_t index = index_of(stream(rows_.work[i].stream));
      if (index == op.stream || std::count(branches.begin(), branches.end(), index) != 0) continue;
      branches.push_back(index);
      follow(index, op.stream);
    }
    for (const std::uint32_t i : works) work(rows_.work[i], at, at, false);
    for (const std::uint16_t branch : branches) follow(op.stream, branch);
  }

  void note(const HostOrder::Item& item) {
    const Note& note = notes_.notes[item.index];
    Op op;
    switch (note.kind) {
      case Note::Kind::communicate:
        return communicate(item, note);
      case Note::Kind::allocate:
      case Note::Kind::free: {
        const bool frees = note.kind == Note::Kind::free;
        op.kind = frees ? OpKind::free : OpKind::allocate;
        op.bytes = note.bytes;
        // Torch's own threads free blocks too: they count, at no time of the program's.
        if (!options_.is_program_thread || options_.is_program_thread(note.thread)) {
          begin(op, note.end);
        }
        if (!frees) return append(op);
        frees_.push_back(op);
        freed_bytes_.push_back(op.bytes);
        return;
      }
      case Note::Kind::mark:
        op.kind = OpKind::mark;
        op.detail = static_cast<std::uint8_t>(note.mark);
        op.ref = recorder_.string(notes_.labels[note.label]);
        begin(op, note.end);
        return append(op);
      case Note::Kind::own:
        return;
    }
  }

  // A launch of communication: the door says what; NCCL's kernels (if it was forwarded) say when,
  // else the door's events. Where neither does, what the door planned stands.
  void communicate(const HostOrder::Item& item, const Note& note) {
    const auto works = host_order_.work_of(item);
    counts_.inside_launches += works.size();
    ++counts_.launches_of_communication;
    std::uint64_t first = UINT64_MAX, last = 0;
    bool measured = false;
    for (const std::uint32_t i : works) {
      const WorkRow& row = rows_.work[i];
      if (row.start == 0) continue;
      first = std::min(first, row.start);
      last = std::max(last, row.end);
      measured |= row.kind == OpKind::kernel && is_of_nccl(rows_.kernels[row.kernel].name);
    }
    if (!measured && note.device_end != 0) {
      measured = true;
      first = note.device_begin;
      last = note.device_end;
    }
    const auto parts = std::span(notes_.parts).subspan(note.first, note.count);
    const std::uint16_t index = enter(note.stream);
    last_stream_[note.thread] = note.stream;
    std::int64_t longest = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Op op = parts[i];
      op.host_ns = 0;
      op.stream = index;
      op.flags = static_cast<std::uint8_t>(op.flags & ~Op::group_continues);
      if (i + 1 < parts.size()) op.flags |= Op::group_continues;
      if (i == 0) begin(op, effect(note.begin, note.end, works));
      if (measured) {
        const std::int64_t ready = clock_.ready(index);
        if (i == 0) counts_.gap_ns += std::max<std::int64_t>(since_origin(first) - ready, 0);
        op.duration_ns = std::max<std::int64_t>(since_origin(last) - ready, 0);
        op.flags = static_cast<std::uint8_t>(op.flags & ~Op::provenance_mask);
        op.flags |= static_cast<std::uint8_t>(Provenance::measured);
      }
      longest = std::max(longest, op.duration_ns);
      append(op);
    }
    clock_.finish(index, clock_.ready(index) + longest);
    if (!parts.empty() && parts.back().is_blocking()) clock_.sync_stream(index);
  }

  const Rows& rows_;
  const Notes& notes_;
  const JoinOptions& options_;
  JoinCounts& counts_;
  Recorder& recorder_;
  HostOrder host_order_;
  StreamTable streams_;
  RankClock clock_;
  std::vector<std::uint32_t> kernels_;                    // ids of the recorder, by row
  std::vector<std::uint32_t> records_;                    // event records by stream
  std::unordered_map<std::uint64_t, Recorded> recorded_;  // by event_sync
  std::unordered_map<std::uint32_t, std::uint32_t> created_;
  std::unordered_map<std::uint32_t, StreamKey> last_stream_;  // by thread
  std::vector<Op> frees_;
  std::vector<std::int64_t> freed_bytes_;
};

}  // namespace

JoinCounts join(const Rows& rows, const Notes& notes, const JoinOptions& options,
                Recorder& recorder) {
  JoinCounts counts;
  Join(rows, notes, options, counts, recorder).run();
  return counts;
}

}  // namespace prism::device::cupti
