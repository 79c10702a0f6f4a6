// Ranks that run outside: their ops come in while the others are replayed, and they are told times.
#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "engine/replayer.h"
#include "engine/text.h"

namespace prism::engine {
namespace {

// Records of a stream that an outside rank may look back to. A recorded program says how far it
// looks; one that is still running does not.
constexpr std::size_t ring_size = 4096;

}  // namespace

void Replayer::set_up_outside() {
  timed_ = outside_->timed();
  for (std::uint32_t k = 0; k < graph_.num_kernels(); ++k) {
    kernel_identities_.push_back(kernel_identity(graph_.kernel_name(k), graph_.kernel_shape(k)));
  }
  const std::span<const std::uint32_t> sources = outside_->ranks();
  for (std::size_t source = 0; source < sources.size(); ++source) {
    const std::uint32_t i = dense(sources[source]);
    if (i == no_node) {
      throw GraphError(cat("rank ", sources[source], " is to run, but the graph does not hold it (",
                           ranks_.size(), " of ", graph_.world_size(), " ranks held)"));
    }
    RankState& r = ranks_[i];
    if (r.outside != nullptr) throw GraphError(cat("rank ", r.rank, " is to run twice"));
    if (r.shown) throw GraphError(cat("rank ", r.rank, " runs: it has no recorded timeline"));
    r.outside =
        std::make_unique<Outside>(source,
                                  Feed(!r.perturbed && !r.fails && timed_ == nullptr,
                                       timed_ != nullptr, contents_, durations_.kernel_times()),
                                  Recorded(graph_, r.rank, kernel_identities_, on_divergence_));
    Outside& o = *r.outside;
    o.ring_times.resize(ring_size * num_streams_);
    o.host_times.resize(ring_size * num_streams_);
    for (std::size_t s = 0; s < num_streams_; ++s) {
      r.rings[s].times = o.ring_times.data() + s * ring_size;
      r.rings[s].mask = ring_size - 1;
    }
    const auto rows =
        std::span(rows_).subspan(row_begin_[i], programs_[r.program].iterations + std::size_t{2});
    r.ledger = Ledger({.compute_overlaps = true,
                       .transfer_overlaps = true,
                       .callbacks = true,
                       .one_stream = false},
                      rows);
    r.lanes = ~std::uint64_t{0};
    outside_ranks_.push_back(i);
  }
}

bool Replayer::listen() {
  for (;;) {
    bool running = false;
    if (hear(running) || !runnable_.empty()) return true;
    if (timed_ == nullptr) {
      if (!running) return false;
      outside_->wait();
    } else if (!running) {
      if (!start_held()) return false;
    } else if (wait_timed()) {
      return true;
    }
  }
}

// Takes what ranks have posted. True: something moved. running: one of them may post more before
// it is told anything.
bool Replayer::hear(bool& running) {
  bool moved = false;
  for (const std::uint32_t i : outside_ranks_) {
    RankState& r = ranks_[i];
    Outside& o = *r.outside;
    if (r.stopped && !o.feed.ended()) {  // it has failed: what it does is of no matter
      posts_.clear();
      outside_->take(o.source, posts_);
    }
    if (r.finished || r.stopped) continue;
    if (!o.feed.ended() && !o.feed.asks()) {
      posts_.clear();
      outside_->take(o.source, posts_);
      for (Post& post : posts_) {
        while (const Op* mark = o.recorded.due_mark(post)) {
          o.feed.add({.op = *mark, .posted_ns = post.posted_ns});
        }
        o.recorded.follow(post);
        o.feed.add(post);
      }
    }
    if (o.hungry && (!o.feed.empty() || o.feed.ended())) {
      o.hungry = false;
      go_on_first(r);
    } else if (r.deferred != 0 && !o.asks && !o.feed.empty()) {
      moved |= run_ahead(r);
    }
    running |= !o.feed.ended() && !o.feed.asks() && !o.held;
  }
  return moved;
}

// Before all ghosts that can: somebody waits for what it does.
void Replayer::go_on_first(RankState& r) {
  WaitList first;
  lists_.append(first, r.index);
  lists_.splice(first, runnable_);
}

bool Replayer::next_outside_block(RankState& r) {
  Outside& o = *r.outside;
  if (r.stopped) return false;
  if (!o.earliest.empty()) r.clock.host_at_least(o.earliest.back());
  if (o.block.last.ask != Ask::nothing && !tell(r)) return false;
  if (o.feed.empty()) return false;
  o.block = o.feed.take();
  if (timed_ != nullptr) stamp(r);
  const Steps& steps = *o.block.steps;
  if (steps.streams > num_streams_) {
    o.recorded.stop(
        cat("it uses stream ", steps.streams - 1, ", the graph none past ", num_streams_ - 1));
  }
  o.iterations += steps.facts.front().iterations;
  if (!whole_is_one_ && o.iterations > programs_[r.program].iterations) {
    o.recorded.stop(cat("it goes on after ", programs_[r.program].iterations,
                        " iterations, where its recorded program ends"));
  }
  ++r.position;
  PRISM_CHECK(r.position == o.blocks.size());
  o.blocks.push_back(&steps);
  o.first_op.push_back(o.block.first_op);
  const auto all = steps.of(0);
  r.step = all.data();
  r.steps_end = r.step + all.size();
  return true;
}

// One that has left its recorded program may also end it early.
void Replayer::check_end(const RankState& r) const {
  const std::uint32_t recorded = programs_[r.program].iterations;
  const Outside& o = *r.outside;
  if (whole_is_one_ || o.iterations >= recorded) return;
  o.recorded.stop(
      cat("its program has ended after ", o.iterations, " of ", recorded, " recorded iterations"));
}

void Replayer::note_record(RankState& r, std::uint16_t stream, std::int64_t host) noexcept {
  const EventRing& ring = r.rings[stream];
  r.outside->host_times[stream * ring_size + (ring.count & ring.mask)] = host;
}

bool Replayer::tell(RankState& r) {
  Outside& o = *r.outside;
  const Op& op = o.block.last.op;
  const Ask ask = o.block.last.ask;
  const std::uint16_t s = ask == Ask::stream_done ? op.stream : op.event_stream;
  std::int64_t time = 0, reached = 0;
  bool known = true;
  if (ask == Ask::stream_done) {
    known = r.deferred != 0 ? r.queues[s].empty() : r.pending == 0 || resolve(r, s);
    time = r.clock.stream(s);  // at least that, where it is not known
  } else if (ask != Ask::host_time) {
    if (r.deferred == 0 && r.pending != 0) resolve(r, s);
    EventRing& ring = r.rings[s];
    if (op.peer <= ring.count) {
      std::uint64_t number = ring.count - op.peer;
      if (!ring.holds(number)) number = ring.count - ring_size;  // long ago: not later than this
      time = ring.at(number);
      known = EventRing::is_known(time);
      reached = std::max(time, o.host_times[s * ring_size + (number & ring.mask)]);
    }
  }
  std::int64_t value = 0;
  switch (ask) {
    case Ask::host_time:
      value = r.clock.host();
      break;
    case Ask::event_time:
      value = reached;
      break;
    default:
      value = known && r.clock.is_done(time) ? 1 : 0;
      known = known || !r.clock.is_done(time);
  }
  if (!known) {
    // On the common path nobody wakes a rank that does not wait for its own launch.
    if (r.deferred == 0) {
      Launch& l = r.launches[r.homes[s]];
      lists_.append(waiters(l.handle(l.next)), lists_.take_extra(r.index, for_answer));
    }
    o.asks = true;
    return false;
  }
  tell(r, value);
  return true;
}

void Replayer::tell(RankState& r, std::int64_t value) {
  Outside& o = *r.outside;
  o.asks = false;
  o.block.last.ask = Ask::nothing;
  o.feed.told();
  if (timed_ != nullptr) return answer_timed(r, value);
  outside_->answer(o.source, value);
}

// Nobody can go on, and some ranks wait for an answer to a query. What such a query waits for comes
// after an op of a rank that queries too, so not before the earliest of their hosts: the answer
// there is no.
bool Replayer::tell_not_ready() {
  RankState* earliest = nullptr;
  for (const std::uint32_t i : outside_ranks_) {
    RankState& r = ranks_[i];
    if (!r.outside->asks || r.outside->block.last.ask == Ask::event_time) continue;
    if (earliest == nullptr || r.clock.host() < earliest->clock.host()) earliest = &r;
  }
  if (earliest == nullptr) return false;
  tell_not_ready(*earliest);
  return true;
}

void Replayer::tell_not_ready(RankState& r) {
  r.outside->hungry = r.deferred == 0;
  tell(r, 0);
}

}  // namespace prism::engine
