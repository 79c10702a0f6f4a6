#include "intercept/launch.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "intercept/device_port.h"
#include "intercept/failure.h"
#include "intercept/joint.h"
#include "intercept/rules.h"

namespace prism::intercept {

namespace {

struct Group {
  int depth = 0;
  abi::nccl::Result error = abi::nccl::success;
  std::vector<Call> calls;
};

thread_local Group group;

// One movement of bytes of a launch, with nothing in it that a destroyed communicator could take
// away.
struct Move {
  Effect effect = Effect::spread;
  const void* from = nullptr;
  void* to = nullptr;
  std::int64_t from_bytes = 0;
  std::int64_t to_bytes = 0;
  UniformReduction reduction{};
  const void* device_scalar = nullptr;

  // Pages that hold zero and stay zero are not touched: they cost no memory.
  void run() {
    DevicePort& port = device_port();
    if (is_zero(from, from_bytes)) {
      if (is_zero(to, to_bytes)) return;
      std::memset(to, 0, static_cast<std::size_t>(to_bytes));
    } else if (effect == Effect::reduce) {
      const auto element = static_cast<std::int64_t>(size_of(reduction.dtype));
      if (device_scalar != nullptr) {
        std::memcpy(reduction.scalar.data(), device_scalar, static_cast<std::size_t>(element));
      }
      reduce_uniform(reduction, from, to, to_bytes / element);
    } else {
      spread(from, from_bytes, to, to_bytes);
    }
    port.note_written(to, to_bytes);
  }
};

// The framework gathers to a root by receives alone, one from every other member, and copies the
// own data itself, on a stream of its choice. Where the receives lie side by side with a gap for
// the rank's own place, the gap is that own data, and by the contract everybody's. (With two
// members the pattern is that of any receive: not taken for a gather.)
bool gathers(std::span<const Call* const> receives) {
  const Call& first = *receives.front();
  const std::uint32_t size = first.communicator->size;
  const std::uint32_t own = first.communicator->position;
  if (size < 3 || receives.size() != size - 1 || first.to_bytes == 0) return false;
  const auto* base =
      static_cast<const std::byte*>(first.to) - first.to_bytes * std::int64_t{first.peer};
  std::uint32_t expected = 0;
  for (const Call* receive : receives) {
    if (expected == own) ++expected;
    if (receive->peer != expected || receive->to_bytes != first.to_bytes ||
        receive->to != base + first.to_bytes * std::int64_t{expected}) {
      return false;
    }
    ++expected;
  }
  return device_port().is_device(base) &&
         device_port().is_device(base + first.to_bytes * std::int64_t{size} - 1);
}

// A launch in which a rank sends to itself is an all-to-all: what it sends to a peer stands for
// what that peer sends back (the own data, by position, within the receive's size). In any other
// launch a receive comes from a rank that is not there, and reads as zero.
// copies_own: set where the moves read what the program copies on another stream.
void pair_messages(std::span<Call> calls, std::vector<Move>& moves, bool& copies_own) {
  std::vector<const Call*> sends;
  std::vector<const Call*> receives;
  bool to_itself = false;
  std::int64_t bytes = 0;
  for (const Call& call : calls) {
    if (call.effect == Effect::send) {
      sends.push_back(&call);
      to_itself = to_itself || call.peer == call.communicator->position;
    } else if (call.effect == Effect::receive) {
      receives.push_back(&call);
    }
    if (call.effect == Effect::send || call.effect == Effect::receive) {
      bytes += std::max(call.from_bytes, call.to_bytes);
    }
  }
  if (receives.empty()) return;
  if (sends.empty() && receives.front()->moves && gathers(receives)) {
    const Call& first = *receives.front();
    auto* base = static_cast<std::byte*>(first.to) - first.to_bytes * std::int64_t{first.peer};
    Move move;
    move.from = base + first.to_bytes * std::int64_t{first.communicator->position};
    move.from_bytes = first.to_bytes;
    move.to = base;
    move.to_bytes = first.to_bytes * std::int64_t{first.communicator->size};
    moves.push_back(move);
    copies_own = true;
    return;
  }
  if (!to_itself) {
    for (const Call* receive : receives) {
      if (receive->moves) moves.push_back({.to = receive->to, .to_bytes = receive->to_bytes});
    }
    return;
  }
  if (bytes > 2 * device_port().real_bytes_limit()) return;
  const auto by_peer = [](const Call* a, const Call* b) { return a->peer < b->peer; };
  std::stable_sort(sends.begin(), sends.end(), by_peer);
  std::stable_sort(receives.begin(), receives.end(), by_peer);
  auto send = sends.begin();
  for (const Call* receive : receives) {
    while (send != sends.end() && (*send)->peer < receive->peer) ++send;
    Move move{.to = receive->to, .to_bytes = receive->to_bytes};
    if (send != sends.end() && (*send)->peer == receive->peer) {
      move.from = (*send)->from;
      move.from_bytes = (*send)->from_bytes;
      ++send;
    }
    moves.push_back(move);
  }
}

// calls: of one communicator and stream, in call order.
abi::nccl::Result launch(std::span<Call> calls, RealGroup& real) {
  DevicePort& port = device_port();
  void* const stream = calls.front().stream;
  thread_local std::vector<Op> parts;  // warm after the first launches
  parts.clear();
  for (const Call& call : calls) parts.push_back(call.op);
  port.communicate(stream, parts);
  if (RealCommunicator* const straight = calls.front().communicator->real.get()) {
    for (const Call& call : calls) {
      const abi::nccl::Result result = real.launch(*straight, call);
      if (result != abi::nccl::success && result != abi::nccl::in_progress) return result;
    }
    return abi::nccl::success;
  }
  const auto company = port.company(calls.front().op.ref);
  std::vector<Move> moves;
  for (const Call& call : calls) {
    if (company != nullptr || !call.moves ||
        (call.effect != Effect::spread && call.effect != Effect::reduce))
      continue;
    moves.push_back({call.effect, call.from, call.to, call.from_bytes, call.to_bytes,
                     call.reduction, call.device_scalar});
  }
  bool copies_own = false;
  pair_messages(calls, moves, copies_own);
  if (copies_own) port.follow_all(stream);
  if (moves.empty() && company == nullptr) return abi::nccl::success;
  std::vector<Touched> touched;
  touched.reserve(2 * moves.size());
  for (const Move& move : moves) {
    if (move.from_bytes > 0) touched.push_back({move.from, move.from_bytes});
    touched.push_back({move.to, move.to_bytes});
  }
  auto work = std::make_shared<std::vector<Move>>(std::move(moves));
  auto run = [work] {
    for (Move& move : *work) move.run();
  };
  if (company == nullptr) {
    port.enqueue(stream, std::move(run), touched);
    return abi::nccl::success;
  }
  // What comes from members that run is written over what the contract says.
  auto joint = std::make_shared<JointLaunch>(company, calls, std::move(run));
  touched.insert(touched.end(), joint->touches().begin(), joint->touches().end());
  port.enqueue_step(stream, [joint] { return joint->step(); }, touched);
  return abi::nccl::success;
}

// What ghosts send follows rules; a communicator without ghosts has none to follow.
void follow_rules(std::span<const Call> calls) {
  if (calls.front().communicator->real == nullptr) apply_rules(calls);
}

bool same_launch(const Call& a, const Call& b) noexcept {
  return a.communicator == b.communicator && a.stream == b.stream;
}

}  // namespace

abi::nccl::Result submit(Call call) {
  if (group.depth > 0) {
    group.calls.push_back(std::move(call));
    return abi::nccl::success;
  }
  RealGroup real;
  const abi::nccl::Result launched = launch({&call, 1}, real);
  const abi::nccl::Result ended = real.end();
  follow_rules({&call, 1});
  return launched != abi::nccl::success ? launched : ended;
}

abi::nccl::Result refuse(abi::nccl::Result result) noexcept {
  if (group.depth > 0 && group.error == abi::nccl::success) group.error = result;
  return result;
}

void group_start() noexcept { ++group.depth; }

abi::nccl::Result group_end() {
  if (group.depth == 0) {
    return fail(abi::nccl::invalid_usage, "ncclGroupEnd: there is no open group in this thread");
  }
  if (--group.depth > 0) return abi::nccl::success;
  const abi::nccl::Result error = std::exchange(group.error, abi::nccl::success);
  std::vector<Call> calls = std::exchange(group.calls, {});
  if (error != abi::nccl::success) return error;  // the refused call has said why
  RealGroup real;
  abi::nccl::Result failed = abi::nccl::success;
  for (auto rest = calls.begin(); rest != calls.end() && failed == abi::nccl::success;) {
    const auto end = std::stable_partition(
        rest, calls.end(), [first = *rest](const Call& call) { return same_launch(first, call); });
    failed = launch({rest, end}, real);
    follow_rules({rest, end});
    rest = end;
  }
  const abi::nccl::Result ended = real.end();
  calls.clear();
  if (group.calls.empty()) group.calls = std::move(calls);  // keep the memory for the next group
  return failed != abi::nccl::success ? failed : ended;
}

abi::nccl::Result group_discard(std::size_t& calls) noexcept {
  calls = group.calls.size();
  if (group.depth == 0) {
    return fail(abi::nccl::invalid_usage,
                "ncclGroupSimulateEnd: there is no open group in this thread");
  }
  if (--group.depth > 0) return abi::nccl::success;
  group.calls.clear();
  return std::exchange(group.error, abi::nccl::success);
}

}  // namespace prism::intercept
