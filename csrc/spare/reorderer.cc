#include "spare/reorderer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "spare/part_flow.h"
#include "spare/running_step.h"
#include "spare/words.h"

namespace prism::spare {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

template <class T>
std::uint64_t chain(std::uint64_t digest, std::span<const T> values) {
  return hash64(std::as_bytes(values), digest + values.size());
}

enum class Call : std::int32_t { kFail, kRejoin, kCommit };

}  // namespace

std::string_view name(Outcome outcome) {
  constexpr std::string_view names[] = {"kept", "reordered", "deepened", "shallower", "wipe_out"};
  return names[static_cast<std::size_t>(outcome)];
}

struct Reorderer::State {
  State(Placement placed, std::int32_t micro)
      : placement(std::move(placed)),
        groups(placement.groups()),
        redundancy(placement.redundancy()),
        micro_batches(micro),
        flow(placement, micro,
             micro == 1 ? PartFlow::Kept::kFirstTypes : PartFlow::Kept::kSameParts),
        step(flow, groups, redundancy, micro),
        order(placement.stacks().size()),
        owners(at(groups) * at(micro)),
        live_hosts(at(groups)),
        named(at(groups), 0),
        touched(at(groups), 0),
        patches_of(at(groups), 0),
        patched(at(groups), 0),
        quota(placement.stacks().size(), 0) {
    start();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void start();
  void restart();
  void check_running(const char* call) const;
  void check_named(const char* call, std::span<const std::int32_t> which, bool up);
  void fail(std::span<const std::int32_t> which);
  void rejoin(std::span<const std::int32_t> which);
  std::int32_t least_depth() const;
  void begin_plan(std::span<const std::int32_t> which);
  void settle(std::int32_t new_depth);
  void bring_forward(std::int32_t place);
  void reassign(std::int32_t type);
  void patch();
  void seal(Call call);

  Placement placement;
  std::int32_t groups;
  std::int32_t redundancy;
  std::int32_t micro_batches;
  PartFlow flow;
  RunningStep step;
  std::vector<std::int32_t> order;       // one micro-batch: places by group, then rank
  std::vector<std::int32_t> owners;      // by part: a place
  std::vector<std::int32_t> live_hosts;  // by type
  std::int32_t depth = 0;
  std::int32_t survivors = 0;
  bool wiped = false;
  std::uint64_t digest = 0;
  Plan plan;

  struct {
    std::vector<std::int32_t> parts;  // by place
    std::vector<std::int32_t> order;
    std::vector<std::int32_t> owners;
    std::uint64_t digest = 0;
  } first;

  // Scratch of one call.
  std::uint32_t call = 0;
  std::vector<std::int32_t> names;       // the groups of this call, ascending
  std::vector<std::uint32_t> named;      // by group: the call that named it last
  std::vector<std::uint32_t> touched;    // by type
  std::vector<std::int32_t> types;       // touched by this call
  std::vector<std::int32_t> orphans;     // parts whose holder is down
  std::vector<std::int32_t> homeless;    // parts of a type without an owner
  std::vector<std::int32_t> patches_of;  // by group
  std::vector<std::uint32_t> patched;    // by group: the call that patches_of counts for
  std::vector<std::int32_t> quota;       // by place
};

// The layout of a fresh life: every type with the group that has it first. A placement of the
// user's own may leave types that nobody has first; as each group hosts as many types as a type has
// hosts, a matching at the depth of one shard exists all the same, and the stacks are reordered to
// it.
void Reorderer::State::start() {
  std::vector<std::int32_t> parts(order.size(), 0);
  std::vector<bool> owned(at(groups), false);
  for (std::int32_t place = 0; place < static_cast<std::int32_t>(order.size()); ++place) {
    order[at(place)] = place;
    if (micro_batches == 1) flow.set_rank(place, place % redundancy);
    const std::int32_t type = flow.type_of(place);
    if (place % redundancy == 0 && !owned[at(type)]) {
      owned[at(type)] = true;
      parts[at(place)] = micro_batches;
    }
  }
  depth = micro_batches;
  flow.assign(parts, depth);
  flow.begin();
  for (std::int32_t type = 0; type < groups; ++type) {
    if (!owned[at(type)]) flow.leave_unplaced(type, micro_batches);
  }
  PRISM_CHECK(flow.place_all(depth));
  std::fill(owners.begin(), owners.end(), -1);
  for (std::int32_t place = 0; place < static_cast<std::int32_t>(order.size()); ++place) {
    parts[at(place)] = flow.parts(place);
    if (micro_batches == 1 && parts[at(place)] > 0 && flow.rank(place) >= 1) bring_forward(place);
    const std::int64_t part = std::int64_t{flow.type_of(place)} * micro_batches;
    for (std::int32_t i = 0, left = parts[at(place)]; i < micro_batches && left > 0; ++i) {
      if (owners[at(part + i)] >= 0) continue;
      owners[at(part + i)] = place;
      --left;
    }
  }
  first.digest = chain(static_cast<std::uint64_t>(micro_batches), placement.stacks());
  first.parts = std::move(parts);
  first.order = order;
  first.owners = owners;
  restart();
}

void Reorderer::State::restart() {
  order = first.order;
  owners = first.owners;
  if (micro_batches == 1) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      flow.set_rank(order[i], static_cast<std::int32_t>(i) % redundancy);
    }
  }
  depth = micro_batches;
  survivors = groups;
  wiped = false;
  digest = first.digest;
  std::fill(live_hosts.begin(), live_hosts.end(), redundancy);
  flow.assign(first.parts, depth);
  step.restart(owners, depth);
}

void Reorderer::State::check_running(const char* call_name) const {
  if (wiped) {
    throw SpareError(
        std::string(call_name) +
        ": the last failure wiped out every host of a type, so there is no layout; call "
        "restart() and load the checkpoint");
  }
}

void Reorderer::State::check_named(const char* call_name, std::span<const std::int32_t> which,
                                   bool up) {
  check_running(call_name);
  ++call;
  for (const std::int32_t group : which) {
    const std::string found = std::string(call_name) + ": found group " + std::to_string(group);
    if (group < 0 || group >= groups) {
      throw SpareError(found + ", expected 0 to " + std::to_string(groups - 1));
    }
    if (named[at(group)] == call) throw SpareError(found + " twice, expected it once");
    named[at(group)] = call;
    if (flow.alive(group) != up) {
      throw SpareError(found + (up ? ", which is down already; expected a group that is up"
                                   : ", which is up already; expected a group that is down"));
    }
  }
  names.assign(which.begin(), which.end());
  std::sort(names.begin(), names.end());
}

std::int32_t Reorderer::State::least_depth() const {
  const std::int64_t parts = std::int64_t{groups} * micro_batches;
  return static_cast<std::int32_t>((parts + survivors - 1) / survivors);
}

void Reorderer::State::begin_plan(std::span<const std::int32_t> which) {
  plan.outcome = Outcome::kKept;
  plan.new_work = 0;
  plan.patch_depth = 0;
  plan.lost_types.clear();
  plan.patches.clear();
  plan.moves.clear();
  digest = chain(digest, which);
  flow.begin();
}

void Reorderer::State::fail(std::span<const std::int32_t> which) {
  check_named("fail", which, true);
  begin_plan(names);
  orphans.clear();
  for (const std::int32_t group : names) {
    step.lose(group, orphans);
    flow.remove(group);
    --survivors;
    for (const std::int32_t type : placement.stack(group)) {
      if (--live_hosts[at(type)] == 0) plan.lost_types.push_back(type);
    }
  }
  if (!plan.lost_types.empty()) {
    std::sort(plan.lost_types.begin(), plan.lost_types.end());
    wiped = true;
    plan.outcome = Outcome::kWipeOut;
    seal(Call::kFail);
    return;
  }
  std::int32_t next = std::max(depth, least_depth());
  while (!flow.place_all(next)) next = std::max(next + 1, flow.needed_depth());
  const bool deeper = next > depth;
  settle(next);
  patch();
  if (deeper) {
    plan.outcome = Outcome::kDeepened;
  } else if (plan.new_work > 0) {
    plan.outcome = Outcome::kReordered;
  }
  seal(Call::kFail);
}

void Reorderer::State::rejoin(std::span<const std::int32_t> which) {
  check_named("rejoin", which, false);
  begin_plan(names);
  for (const std::int32_t group : names) {
    flow.restore(group);
    ++survivors;
    step.joined(group);
    for (const std::int32_t type : placement.stack(group)) ++live_hosts[at(type)];
    if (micro_batches > 1) continue;
    for (std::int32_t place = group * redundancy; place < (group + 1) * redundancy; ++place) {
      order[at(place)] = first.order[at(place)];
      flow.set_rank(order[at(place)], place % redundancy);
    }
  }
  std::int32_t next = std::min(depth, least_depth());
  while (!flow.place_all(next)) next = std::min(depth, std::max(next + 1, flow.needed_depth()));
  if (next < depth) plan.outcome = Outcome::kShallower;
  settle(next);
  seal(Call::kRejoin);
}

// Owners and orders follow the flow.
void Reorderer::State::settle(std::int32_t new_depth) {
  if (new_depth != depth) step.touch();
  depth = new_depth;
  types.clear();
  for (const PartFlow::Change& change : flow.changes()) {
    // Also a type that a group had below a new, lesser depth and keeps.
    if (micro_batches == 1 && flow.parts(change.place) > 0 && flow.rank(change.place) >= depth) {
      ++plan.new_work;
      bring_forward(change.place);
      step.reordered(flow.group_of(change.place));
    }
    const std::int32_t more = flow.parts(change.place) - change.before;
    if (more == 0) continue;
    if (micro_batches > 1) plan.new_work += std::max(0, more);
    const std::int32_t type = flow.type_of(change.place);
    if (touched[at(type)] == call) continue;
    touched[at(type)] = call;
    types.push_back(type);
  }
  std::sort(types.begin(), types.end());
  for (const std::int32_t type : types) reassign(type);
  flow.finish();
}

// The place takes the deepest rank above the depth that its group does not own; what was there
// comes first of the rest, which keeps its order.
void Reorderer::State::bring_forward(std::int32_t place) {
  const std::int32_t first_place = flow.group_of(place) * redundancy;
  const auto ranked = std::span(order).subspan(at(first_place), at(redundancy));
  std::int32_t to = depth - 1;
  while (to >= 0 && flow.parts(ranked[at(to)]) != 0) --to;
  PRISM_CHECK(to >= 0);
  const std::int32_t out = ranked[at(to)];
  for (std::int32_t rank = flow.rank(place); rank > depth; --rank) {
    ranked[at(rank)] = ranked[at(rank - 1)];
    flow.set_rank(ranked[at(rank)], rank);
  }
  ranked[at(depth)] = out;
  flow.set_rank(out, depth);
  ranked[at(to)] = place;
  flow.set_rank(place, to);
}

// A group that now has fewer parts of a type gives up those of the highest numbers; they go, lowest
// first, to the hosts that have more, in the order of the type's hosts.
void Reorderer::State::reassign(std::int32_t type) {
  const auto places = flow.places_of(type);
  for (const std::int32_t place : places) quota[at(place)] = flow.parts(place);
  homeless.clear();
  const std::int32_t first_part = type * micro_batches;
  for (std::int32_t part = first_part; part < first_part + micro_batches; ++part) {
    std::int32_t& left = quota[at(owners[at(part)])];
    if (left > 0) {
      --left;
    } else {
      homeless.push_back(part);
    }
  }
  auto place = places.begin();
  for (const std::int32_t part : homeless) {
    while (place != places.end() && quota[at(*place)] == 0) ++place;
    PRISM_CHECK(place != places.end());
    --quota[at(*place)];
    const std::int32_t from = flow.group_of(owners[at(part)]);
    owners[at(part)] = *place;
    step.moved(part);
    plan.moves.push_back({{type, part - first_part}, from, flow.group_of(*place)});
  }
}

void Reorderer::State::patch() {
  std::sort(orphans.begin(), orphans.end());
  for (const std::int32_t part : orphans) {
    const std::int32_t owner = owners[at(part)];
    if (!step.adopt(part, owner)) continue;
    const std::int32_t group = flow.group_of(owner);
    plan.patches.push_back({group, {part / micro_batches, part % micro_batches}});
    if (patched[at(group)] != call) {
      patched[at(group)] = call;
      patches_of[at(group)] = 0;
    }
    plan.patch_depth = std::max(plan.patch_depth, ++patches_of[at(group)]);
  }
}

void Reorderer::State::seal(Call kind) {
  const std::int32_t head[] = {static_cast<std::int32_t>(kind),
                               static_cast<std::int32_t>(plan.outcome), depth, survivors};
  digest = chain(digest, std::span<const std::int32_t>(head));
  digest = chain(digest, std::span<const Patch>(plan.patches));
  digest = chain(digest, std::span<const Move>(plan.moves));
  plan.depth = depth;
  plan.survivors = survivors;
  plan.digest = digest;
}

Reorderer::Reorderer(Placement placement, std::int32_t micro_batches) {
  if (micro_batches < 1) {
    throw SpareError("reorderer: found " + std::to_string(micro_batches) +
                     " micro-batches, expected 1 or more");
  }
  if (std::int64_t{placement.groups()} * placement.redundancy() * micro_batches > std::int64_t{1}
                                                                                      << 30) {
    throw SpareError("reorderer: found " + std::to_string(micro_batches) + " micro-batches on " +
                     counted(placement.groups(), "group") + " of " +
                     counted(placement.redundancy(), "type") +
                     ", expected at most 2^30 hosted parts in all");
  }
  state_ = std::make_unique<State>(std::move(placement), micro_batches);
}
Reorderer::~Reorderer() = default;
Reorderer::Reorderer(Reorderer&&) noexcept = default;
Reorderer& Reorderer::operator=(Reorderer&&) noexcept = default;

const Plan& Reorderer::fail(std::span<const std::int32_t> groups) {
  state_->fail(groups);
  return state_->plan;
}

const Plan& Reorderer::rejoin(std::span<const std::int32_t> groups) {
  state_->rejoin(groups);
  return state_->plan;
}

void Reorderer::commit() {
  State& s = *state_;
  s.check_running("commit");
  if (!s.step.dirty()) return;
  s.step.commit(s.owners, s.depth);
  const std::int32_t head[] = {static_cast<std::int32_t>(Call::kCommit)};
  s.digest = chain(s.digest, std::span<const std::int32_t>(head));
}

void Reorderer::restart() { state_->restart(); }

const Placement& Reorderer::placement() const { return state_->placement; }
std::int32_t Reorderer::micro_batches() const { return state_->micro_batches; }
std::int32_t Reorderer::depth() const { return state_->depth; }
std::int32_t Reorderer::survivors() const { return state_->survivors; }
bool Reorderer::wiped_out() const { return state_->wiped; }
std::uint64_t Reorderer::digest() const { return state_->digest; }

namespace {

void check_index(const char* what, std::int32_t found, std::int32_t count) {
  if (found < 0 || found >= count) {
    throw SpareError(std::string(what) + ": found " + std::to_string(found) + ", expected 0 to " +
                     std::to_string(count - 1));
  }
}

}  // namespace

bool Reorderer::alive(std::int32_t group) const {
  check_index("group", group, state_->groups);
  return state_->flow.alive(group);
}

std::int32_t Reorderer::owner(Part part) const {
  state_->check_running("owner");
  check_index("type", part.type, state_->groups);
  check_index("part", part.part, state_->micro_batches);
  return state_->flow.group_of(
      state_->owners[at(std::int64_t{part.type} * state_->micro_batches + part.part)]);
}

std::int32_t Reorderer::holder(Part part) const {
  state_->check_running("holder");
  check_index("type", part.type, state_->groups);
  check_index("part", part.part, state_->micro_batches);
  return state_->flow.group_of(
      state_->step.holder(at(std::int64_t{part.type} * state_->micro_batches + part.part)));
}

std::vector<Part> Reorderer::work(std::int32_t group) const {
  const State& s = *state_;
  s.check_running("work");
  check_index("group", group, s.groups);
  std::vector<Part> parts;
  if (!s.flow.alive(group)) return parts;
  const std::int32_t first_place = group * s.redundancy;
  if (s.micro_batches == 1) {
    for (std::int32_t rank = 0; rank < s.depth; ++rank) {
      parts.push_back({s.flow.type_of(s.order[at(first_place + rank)]), 0});
    }
    return parts;
  }
  for (std::int32_t place = first_place; place < first_place + s.redundancy; ++place) {
    if (s.flow.parts(place) == 0) continue;
    const std::int32_t type = s.flow.type_of(place);
    for (std::int32_t part = 0; part < s.micro_batches; ++part) {
      if (s.owners[at(std::int64_t{type} * s.micro_batches + part)] == place) {
        parts.push_back({type, part});
      }
    }
  }
  return parts;
}

}  // namespace prism::spare
