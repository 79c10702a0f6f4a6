// What to say when ranks do not meet: who, where, and what to look at.
#include "engine/diagnosis.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/error.h"
#include "engine/replayer.h"
#include "engine/text.h"

namespace prism::engine {
namespace {

constexpr std::array<std::string_view, 6> reduction_names{"sum", "prod", "max",
                                                          "min", "avg",  "premul_sum"};

}  // namespace

std::string describe(const Part& part) {
  std::string text(name(part.kind));
  if (reduces(part.kind) && part.detail < reduction_names.size()) {
    text += cat(" ", reduction_names[part.detail]);
  }
  if (part.dtype != DataType::none) text += cat(" ", name(part.dtype));
  text += cat(" of ", part.bytes, " bytes");
  if (has_root(part.kind)) text += cat(", root position ", part.peer);
  if (is_point_to_point(part.kind) && part.tag != 0) text += cat(", tag ", part.tag);
  return text;
}

std::string describe(const Place& place) {
  std::string text = cat("rank ", place.rank, " op ", place.op);
  if (place.part != nullptr) text += cat(" (", describe(*place.part), ")");
  if (!place.call_site.empty()) text += cat(" at ", place.call_site);
  return text;
}

std::string list_ranks(std::span<const std::uint32_t> ranks, std::size_t limit) {
  std::string text;
  for (std::size_t k = 0; k < std::min(ranks.size(), limit); ++k) {
    text += cat(k == 0 ? "" : ", ", ranks[k]);
  }
  if (ranks.size() > limit) text += cat(", ... (", ranks.size(), " in all)");
  return text;
}

std::uint32_t Replayer::num_blocks(const RankState& r) noexcept {
  return r.outside == nullptr ? r.num_blocks : static_cast<std::uint32_t>(r.outside->blocks.size());
}

std::span<const Step> Replayer::steps_at(const RankState& r, std::uint32_t position) noexcept {
  return r.outside == nullptr ? r.table->of(r.blocks[position])
                              : r.outside->blocks[position]->of(0);
}

// The block of its recorded program that holds the same launch: blocks of outside ranks also end
// where the rank asks. One past the last if it has left that program.
std::uint32_t Replayer::recorded_block(const RankState& r, std::uint32_t block) const {
  const auto launches = [](std::span<const Step> steps) {
    return std::count_if(steps.begin(), steps.end(),
                         [](const Step& step) { return step.kind == StepKind::launch; });
  };
  std::ptrdiff_t before = 0;
  for (std::uint32_t p = 0; p < block; ++p) before += launches(steps_at(r, p));
  std::uint32_t p = 0;
  if (!r.outside->recorded.left().empty()) return r.num_blocks;
  for (; p < r.num_blocks; ++p) {
    const std::ptrdiff_t here = launches(folded_.of(r.blocks[p]));
    if (before < here) break;
    before -= here;
  }
  return p;
}

Place Replayer::place_of(std::uint32_t i, std::uint32_t block, std::uint32_t op) const {
  const RankState& r = ranks_[i];
  Place place{r.rank, op, nullptr, {}};
  if (r.outside != nullptr) {
    place.op += r.outside->first_op[block];
  } else {
    for (std::uint32_t p = 0; p < block; ++p) place.op += r.table->facts[r.blocks[p]].ops;
  }
  for (const Step& step : steps_at(r, block)) {
    if (step.kind != StepKind::launch) continue;
    for (const Part& part : parts(step)) {
      if (part.op == op) place.part = &part;
    }
  }
  const std::uint32_t site = r.outside == nullptr ? block : recorded_block(r, block);
  const auto sites = graph_.program(r.program).call_sites;
  if (site < sites.size()) place.call_site = graph_.string(sites[site]);
  return place;
}

Place Replayer::place_of_collective(std::uint32_t i, std::uint32_t communicator,
                                    std::uint64_t wanted) const {
  const RankState& r = ranks_[i];
  std::uint64_t seen = 0;
  for (std::uint32_t p = 0; p < num_blocks(r); ++p) {
    for (const Step& step : steps_at(r, p)) {
      if (step.kind != StepKind::launch) continue;
      for (const Part& part : parts(step)) {
        if (is_point_to_point(part.kind) || r.slots[part.slot].communicator != communicator) {
          continue;
        }
        if (seen++ == wanted) return place_of(i, p, part.op);
      }
    }
  }
  return {r.rank, 0, nullptr, {}};
}

void Replayer::check_meeting(std::uint32_t c, std::uint64_t n, const Meeting& m, std::uint32_t i,
                             const Part& part, std::uint32_t block) const {
  const Part& first = *m.part;
  const auto members = graph_.communicator(c).members;
  const bool same_call = first.kind == part.kind && first.dtype == part.dtype &&
                         (!has_root(part.kind) || first.peer == part.peer) &&
                         (!reduces(part.kind) || first.detail == part.detail);
  if (same_call && (part.kind == OpKind::gather || part.kind == OpKind::scatter)) {
    // The root holds all chunks, the others one.
    const std::uint32_t root = members[part.peer];
    const auto size = static_cast<std::int64_t>(members.size());
    const std::int64_t whole = root == ranks_[i].rank              ? part.bytes
                               : root == ranks_[m.first_rank].rank ? first.bytes
                                                                   : -1;
    const std::int64_t chunk = root == ranks_[i].rank ? first.bytes : part.bytes;
    if (whole >= 0 && whole % size == 0 && whole / size == chunk) return;
  }
  const std::string_view what = first.kind != part.kind                             ? "kinds"
                                : first.bytes != part.bytes                         ? "sizes"
                                : first.dtype != part.dtype                         ? "data types"
                                : reduces(part.kind) && first.detail != part.detail ? "reductions"
                                                                                    : "roots";
  const Place a = place_of(m.first_rank, m.first_block, first.op), b = place_of(i, block, part.op);
  std::string text =
      cat("members of communicator '", graph_.communicator(c).name, "' meet in collective ", n,
          " with different ", what, ": ", describe(a), ", ", describe(b));
  // A rank that left one out is one ahead of the others.
  const auto skipped = [&](std::uint32_t other, const Part& mine, const Place& who) {
    const Place next = place_of_collective(other, c, n + 1);
    if (next.part == nullptr || next.part->content != mine.content) return false;
    text += cat("; rank ", next.rank, " calls the same as rank ", who.rank, " one later, so rank ",
                who.rank, " seems to have skipped collective ", n);
    return true;
  };
  if (!skipped(m.first_rank, part, b)) skipped(i, first, a);
  throw MismatchError(cat(text, "; all members must call the same collectives in the same order",
                          those_that_left()),
                      b.rank, b.op);
}

void Replayer::message_mismatch(const Message& m) const {
  const Place send = place_of(m.send.rank, m.send.block, m.send.part->op);
  const Place receive = place_of(m.receive.rank, m.receive.block, m.receive.part->op);
  const std::uint32_t c = ranks_[m.send.rank].slots[m.send.part->slot].communicator;
  const bool bytes = m.send.part->bytes != m.receive.part->bytes;
  throw MismatchError(
      cat("a message on communicator '", graph_.communicator(c).name,
          "' is sent and received with different ", bytes ? "sizes" : "data types", ": ",
          describe(send), ", ", describe(receive),
          "; sends and receives of a pair match in order, so one of them may be missing or "
          "misplaced",
          bytes ? ", or the split tables of the two ranks disagree" : "", those_that_left()),
      receive.rank, receive.op);
}

// Whether a rank has issued its part but its stream has not come to it, or only after it failed.
bool Replayer::is_deferred(std::uint32_t i, const Handle& handle) const {
  const RankState& r = ranks_[i];
  if (r.deferred == 0) return false;
  bool found = false;
  for (const StreamQueue& queue : std::span(r.queues, num_streams_)) {
    deferred_.for_each(queue, [&](std::uint32_t op) {
      if (deferred_[op].kind != StepKind::launch) return;
      const Launch& launch = deferred_.launch(op);
      if (deferred_[op].held == 0 && launch.ready_ns < r.fails_ns) return;
      for (std::uint32_t k = 0; k < launch.size(); ++k) {
        const Handle& h = launch.handle(k);
        found |= !h.message && h.id == handle.id && h.number == handle.number;
      }
    });
  }
  return found;
}

// The first launch of a rank, in the order of its program, that waits for its partners.
std::uint32_t Replayer::first_stuck(const RankState& r) const {
  PRISM_CHECK(r.deferred != 0);  // all ranks that wait have run ahead by now
  std::uint32_t first = no_node;
  const auto place = [&](std::uint32_t op) {
    return std::pair(deferred_[op].block, deferred_[op].step->op);
  };
  for (const StreamQueue& queue : std::span(r.queues, num_streams_)) {
    if (queue.empty()) continue;
    const std::uint32_t op = deferred_.first(queue);
    if (deferred_[op].kind != StepKind::launch || deferred_[op].held != 0) continue;
    if (first == no_node || place(op) < place(first)) first = op;
  }
  PRISM_CHECK(first != no_node);
  return first;
}

Stuck Replayer::stuck(std::uint32_t i) const { return stuck_in(i, first_stuck(ranks_[i])); }

bool Replayer::has_arrived(std::uint32_t i, std::uint32_t communicator,
                           std::uint64_t number) const {
  const std::span slots(ranks_[i].slots, ranks_[i].num_slots);
  const bool issued = std::any_of(slots.begin(), slots.end(), [&](const Slot& slot) {
    return slot.communicator == communicator && slot.next > number;
  });
  return issued && !is_deferred(i, {number, communicator});
}

// What a deferred launch that has arrived waits for.
Stuck Replayer::stuck_in(std::uint32_t i, std::uint32_t op) const {
  const RankState& r = ranks_[i];
  const Launch& l = deferred_.launch(op);
  const std::uint32_t k = l.next;
  const Handle& h = l.handle(k);
  Stuck s{place_of(i, l.block, parts(*l.step)[k].op), 0, h.number, h.message, {}};
  if (h.message) {
    const Part& part = parts(*l.step)[k];
    const Slot& slot = r.slots[part.slot];
    const auto members = graph_.communicator(slot.communicator).members;
    s.communicator = slot.communicator;
    s.missing.push_back(dense(members[(std::size_t{slot.position} + part.peer) % members.size()]));
    return s;
  }
  s.communicator = h.id;
  const Meeting& m = meetings_[h.id].at(h.number);
  for (const std::uint32_t member : graph_.communicator(h.id).members) {
    const std::uint32_t other = dense(member);
    const std::int64_t fails = ranks_[other].fails_ns;
    const bool gone =
        m.arrived == Meetings::lost && (m.ready_ns >= fails || m.ready_ns + m.duration_ns > fails);
    if (gone || !has_arrived(other, h.id, h.number)) s.missing.push_back(other);
  }
  return s;
}

namespace {

std::string wait_text(const Graph& graph, const Stuck& s, std::span<const RankState> ranks) {
  std::vector<std::uint32_t> missing;
  for (const std::uint32_t i : s.missing) missing.push_back(ranks[i].rank);
  const std::string which = s.message ? "" : cat(" (collective ", s.number, ")");
  const auto polls = [&](const RankState& r) {
    return r.rank == s.place.rank && r.outside != nullptr && r.outside->asks &&
           r.outside->block.last.ask != Ask::event_time;
  };
  const bool asks = std::any_of(ranks.begin(), ranks.end(), polls);
  return cat(describe(s.place), asks ? " polls" : " waits", " on communicator '",
             graph.communicator(s.communicator).name, "'", which, " for rank ",
             list_ranks(missing, 4));
}

}  // namespace

// A member that knows the communicator under another member list.
void Replayer::check_membership(const Stuck& s) const {
  const auto wanted = graph_.communicator(s.communicator);
  for (const std::uint32_t i : s.missing) {
    const std::span slots(ranks_[i].slots, ranks_[i].num_slots);
    const auto is = [&](const Slot& slot) { return slot.communicator == s.communicator; };
    if (std::any_of(slots.begin(), slots.end(), is)) continue;
    for (const Slot& slot : slots) {
      const auto other = graph_.communicator(slot.communicator);
      if (other.name != wanted.name) continue;
      throw MismatchError(cat("ranks disagree about the members of communicator '", wanted.name,
                              "': ", describe(s.place), " has ranks ", list_ranks(wanted.members),
                              ", rank ", ranks_[i].rank, " has ranks ", list_ranks(other.members),
                              "; all members must create the group with the same list"),
                          s.place.rank, s.place.op);
    }
  }
}

// Why outside ranks may disagree with others, where they left what they recorded.
std::string Replayer::those_that_left() const {
  std::string text;
  for (const std::uint32_t i : outside_ranks_) {
    const std::string& left = ranks_[i].outside->recorded.left();
    if (!left.empty()) text += cat("; ", left);
  }
  return text;
}

void Replayer::deadlock(std::uint32_t first) const {
  // Follow who waits for whom until a rank comes again or has ended.
  std::vector<std::uint32_t> chain;
  std::vector<std::string> links;
  std::vector<std::uint32_t> communicators;
  std::uint32_t at = first;
  std::string end;
  for (;;) {
    const auto again = std::find(chain.begin(), chain.end(), at);
    if (again != chain.end()) {
      const auto from = again - chain.begin();
      links.erase(links.begin(), links.begin() + from);
      communicators.erase(communicators.begin(), communicators.begin() + from);
      std::sort(communicators.begin(), communicators.end());
      communicators.erase(std::unique(communicators.begin(), communicators.end()),
                          communicators.end());
      end = cat("these ", links.size(), " wait for each other");
      if (communicators.size() > 1) {
        end += " over communicators";
        for (std::size_t k = 0; k < std::min<std::size_t>(communicators.size(), 4); ++k) {
          end += cat(k == 0 ? " '" : ", '", graph_.communicator(communicators[k]).name, "'");
        }
        end += "; launch them in one order on all ranks";
      } else {
        end += "; post the receive first on one side, or group the send and receive";
      }
      break;
    }
    if (ranks_[at].finished) {
      end = cat("rank ", ranks_[at].rank, " ended its program after ",
                programs_[ranks_[at].program].ops,
                " ops and never came; look for a branch that skips the call there");
      break;
    }
    const Stuck s = stuck(at);
    check_membership(s);
    chain.push_back(at);
    links.push_back(wait_text(graph_, s, ranks_));
    communicators.push_back(s.communicator);
    // A rank that has ended explains more than one that waits itself.
    const auto ended = std::find_if(s.missing.begin(), s.missing.end(),
                                    [&](std::uint32_t m) { return ranks_[m].finished; });
    at = ended != s.missing.end() ? *ended : s.missing.front();
  }
  std::string text =
      cat("deadlock: ", ranks_.size() - finished_, " of ", ranks_.size(), " ranks cannot go on: ");
  constexpr std::size_t shown = 4;
  for (std::size_t k = 0; k < links.size(); ++k) {
    if (k == shown && links.size() > shown + 1) {
      text += cat(links.size() - shown - 1, " more ...; ");
      k = links.size() - 1;
    }
    text += cat(links[k], "; ");
  }
  throw DeadlockError(cat(text, end, those_that_left()));
}

}  // namespace prism::engine
