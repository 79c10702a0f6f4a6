// Ranks that run outside the engine (sandbox ranks) while it replays the others (ghosts). What they
// do comes in as ops, in order; the engine gives it its time, and tells them the times they ask
// for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/replay.h"
#include "graph/graph.h"
#include "graph/op.h"

namespace prism {

// What a rank wants to know once its op has taken effect. It does nothing more until it is told.
enum class Ask : std::uint8_t {
  nothing,
  host_time,    // the host clock, ns
  stream_done,  // 1 if `op.stream` has no work left at the host clock, else 0
  event_done,   // the same of the record that `op.event_stream` and `op.peer` name
  event_time,   // when that record was reached, ns; the engine waits until it knows
};

struct Post {
  Op op;
  // kernel: `kernel_identity`; communication: `communicator_identity`; else 0.
  std::uint64_t what = 0;
  Ask ask = Ask::nothing;
  bool ended = false;  // the rank's program is over; there is no op
  // Wall clock: when the rank posted this, ns of a clock that all its machine's processes share.
  std::int64_t posted_ns = 0;
};

// The same on both sides of the engine: in the process of the rank and over the graph.
std::uint64_t kernel_identity(std::string_view name, const KernelShape& shape) noexcept;
std::uint64_t communicator_identity(std::string_view name,
                                    std::span<const std::uint32_t> members) noexcept;

class TimedRanks;

class OutsideRanks {
 public:
  virtual ~OutsideRanks() = default;

  // Not null: the job runs on the wall clock, and its ranks are told things at their time.
  virtual TimedRanks* timed() noexcept { return nullptr; }

  virtual std::span<const std::uint32_t> ranks() const noexcept = 0;  // of the world, ascending
  // Appends what the i'th of them has done since the last call.
  virtual void take(std::size_t i, std::vector<Post>& posts) = 0;
  // Returns when one of them has done more. Throws where that cannot be any more.
  virtual void wait() = 0;
  virtual void answer(std::size_t i, std::int64_t value) = 0;
  // False: where ranks do nothing but ask whether something is done that nobody will do, they have
  // asked for long enough.
  virtual bool is_patient() const noexcept { return true; }
};

// Where an outside rank does something else than it recorded.
enum class OnDivergence : std::uint8_t {
  stop,    // DivergenceError
  follow,  // it goes on, and ghosts take the sizes and durations of what they meet it in
};

// Ranks on the wall clock (docs/architecture.md, "The wall clock"). Times are ns of the clock of
// Post::posted_ns.
class TimedRanks : public OutsideRanks {
 public:
  TimedRanks* timed() noexcept override { return this; }
  virtual std::int64_t now() noexcept = 0;
  // As wait(), but not past `until`.
  virtual void wait_until(std::int64_t until) = 0;
  // As answer(), at `due`.
  virtual void answer_at(std::size_t i, std::int64_t value, std::int64_t due) = 0;
};

// As replay(), with some of the graph's ranks outside. Theirs is what they do, not what the graph
// recorded. DivergenceError: a rank left its recorded program; with `follow`, only where ghosts
// cannot adapt: a communicator or a stream that is not recorded, another number of iterations.
ReplayResult emulate(const Graph& graph, const ReplayOptions& options, OutsideRanks& outside,
                     OnDivergence on_divergence = OnDivergence::stop);

}  // namespace prism
