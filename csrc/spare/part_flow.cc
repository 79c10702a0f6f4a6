// Least cost. A part costs 1 at a place that does not take it for nothing. Costs of a place are
// convex (free parts first), the flow that survives costs 0, and no cost is negative: so that flow
// is of least cost for what it carries, and each shortest augmenting path keeps it so. Residual
// arcs may cost -1 (a part placed by this change is displaced); node prices, distances of earlier
// searches, keep reduced costs at 0 or more, so that a search is Dijkstra's with a queue by
// distance. Prices change only where a search went, so everything stays local to the loss.
//
// Which depth is impossible. A search without end has seen a set of types and all their live hosts,
// all full of those types alone: any depth needs ceil(parts of the types / hosts).
#include "spare/part_flow.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace prism::spare {
namespace {
constexpr std::int32_t kDown = -1;
constexpr std::int32_t kNoPlace = -1;
constexpr std::int32_t kUnlimited = std::numeric_limits<std::int32_t>::max();
}  // namespace

PartFlow::PartFlow(const Placement& placement, std::int32_t parts_per_type, Kept kept)
    : groups_(placement.groups()),
      redundancy_(placement.redundancy()),
      parts_per_type_(parts_per_type),
      rule_(kept),
      types_(placement.stacks().begin(), placement.stacks().end()),
      places_(types_.size()),
      parts_(types_.size(), 0),
      kept_(types_.size(), 0),
      load_(index(groups_), 0),
      changed_(types_.size(), 0),
      nodes_(2 * index(groups_)),
      added_(index(groups_), 0),
      added_in_(index(groups_), 0) {
  for (std::int32_t type = 0; type < groups_; ++type) {
    const auto hosts = placement.hosts(type);
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      const auto stack = placement.stack(hosts[i]);
      const auto position = std::find(stack.begin(), stack.end(), type) - stack.begin();
      places_[index(type) * index(redundancy_) + i] =
          hosts[i] * redundancy_ + static_cast<std::int32_t>(position);
    }
  }
}

void PartFlow::assign(std::span<const std::int32_t> parts, std::int32_t depth) {
  PRISM_CHECK(parts.size() == parts_.size());
  std::copy(parts.begin(), parts.end(), parts_.begin());
  if (rule_ == Kept::kSameParts) kept_ = parts_;
  settled_depth_ = depth_ = depth;
  std::size_t place = 0;
  for (std::int32_t& load : load_) {
    load = 0;
    for (std::int32_t i = 0; i < redundancy_; ++i) load += parts_[place++];
  }
}

inline std::int32_t PartFlow::free_parts(std::int32_t place) const {
  const std::int32_t kept = kept_[index(place)];
  return rule_ == Kept::kFirstTypes ? (kept < depth_ ? 1 : 0) : kept;
}

inline void PartFlow::set_price(Node& node, std::int32_t price) {
  node.priced = placing_;
  node.price = price;
}

inline void PartFlow::change(std::int32_t place, std::int32_t by) {
  if (changed_[index(place)] != change_) {
    changed_[index(place)] = change_;
    changes_.push_back({place, parts_[index(place)]});
  }
  parts_[index(place)] += by;
}

void PartFlow::begin() {
  ++change_;
  changes_.clear();
  removed_.clear();
}

void PartFlow::remove(std::int32_t group) {
  for (std::int32_t place = group * redundancy_; place < (group + 1) * redundancy_; ++place) {
    const std::int32_t parts = parts_[index(place)];
    if (parts == 0) continue;
    removed_.push_back({types_[index(place)], parts});
    change(place, -parts);
  }
  load_[index(group)] = kDown;
}

void PartFlow::restore(std::int32_t group) { load_[index(group)] = 0; }

void PartFlow::finish() {
  settled_depth_ = depth_;
  if (rule_ == Kept::kFirstTypes) return;
  for (const Change& change : changes_) kept_[index(change.place)] = parts_[index(change.place)];
}

// What lies above the depth becomes unplaced: by rank, or from the end of the stack.
void PartFlow::trim() {
  for (std::int32_t group = 0; group < groups_; ++group) {
    if (load_[index(group)] <= 0) continue;
    for (std::int32_t i = redundancy_ - 1; i >= 0; --i) {
      const std::int32_t place = group * redundancy_ + i;
      const std::int32_t parts = parts_[index(place)];
      const std::int32_t above = rule_ == Kept::kFirstTypes
                                     ? (kept_[index(place)] < depth_ ? 0 : parts)
                                     : std::min(parts, load_[index(group)] - depth_);
      if (above <= 0) continue;
      change(place, -above);
      load_[index(group)] -= above;
      unplaced_.push_back({types_[index(place)], above});
    }
  }
}

void PartFlow::undo() {
  for (const Change& change : changes_) {
    std::int32_t& load = load_[index(group_of(change.place))];
    if (load == kDown) continue;
    load += change.before - parts_[index(change.place)];
    parts_[index(change.place)] = change.before;
  }
}

bool PartFlow::place_all(std::int32_t depth) {
  depth_ = depth;
  ++placing_;
  unplaced_.assign(removed_.begin(), removed_.end());
  if (depth < settled_depth_) trim();
  // All that costs nothing first, then all that a free host takes, then paths: each step leaves the
  // flow at least cost for what it carries.
  if (rule_ == Kept::kFirstTypes) {
    for (Unplaced& source : unplaced_) place_unchanged(source);
  }
  for (Unplaced& source : unplaced_) place_beside(source);
  for (Unplaced& source : unplaced_) {
    if (!place_by_paths(source)) {
      undo();
      return false;
    }
  }
  return true;
}

// A live host whose first types hold the type anyway, with room: the one with the least load.
void PartFlow::place_unchanged(Unplaced& source) {
  std::int32_t best = kNoPlace;
  std::int32_t least = 0;
  for (const std::int32_t place : places_of(source.type)) {
    const std::int32_t load = load_[index(group_of(place))];
    if (load < 0 || load >= depth_ || parts_[index(place)] != 0 || free_parts(place) == 0) continue;
    if (best == kNoPlace || load < least) {
      best = place;
      least = load;
    }
  }
  if (best == kNoPlace) return;
  change(best, 1);
  ++load_[index(group_of(best))];
  --source.parts;
}

// Hosts with room, one part at a time, so that what must be patched spreads: fewest parts added by
// this change first, then most room. Only for types that nobody takes at cost 0: then cost 1 is
// least, and price -1 for the type and 0 for all else is right for the searches that follow.
void PartFlow::place_beside(Unplaced& source) {
  if (source.parts == 0) return;
  for (const std::int32_t place : places_of(source.type)) {
    if (alive(group_of(place)) && parts_[index(place)] < free_parts(place)) return;
  }
  set_price(nodes_[index(source.type)], -1);
  while (source.parts > 0) {
    std::int32_t best = kNoPlace;
    std::int32_t fewest = 0;
    std::int32_t least = 0;
    for (const std::int32_t place : places_of(source.type)) {
      const std::int32_t group = group_of(place);
      const std::int32_t load = load_[index(group)];
      if (load < 0 || load >= depth_) continue;
      const std::int32_t added = added_in_[index(group)] == placing_ ? added_[index(group)] : 0;
      if (best == kNoPlace || added < fewest || (added == fewest && load < least)) {
        best = place;
        fewest = added;
        least = load;
      }
    }
    if (best == kNoPlace) return;
    const std::int32_t group = group_of(best);
    change(best, 1);
    ++load_[index(group)];
    --source.parts;
    added_in_[index(group)] = placing_;
    added_[index(group)] = fewest + 1;
  }
}

bool PartFlow::place_by_paths(Unplaced& source) {
  while (source.parts > 0) {
    const std::int32_t group = search(source.type);
    if (group < 0) return false;
    source.parts -= push(source.type, group, source.parts);
  }
  return true;
}

inline bool PartFlow::label(std::int32_t node_id, std::int32_t distance, std::int32_t from) {
  Node& node = nodes_[index(node_id)];
  if (node.seen == search_) {
    if (node.distance <= distance) return false;
  } else {
    node.seen = search_;
    visited_.push_back(node_id);
  }
  node.distance = distance;
  node.from = from;
  if (queue_.size() <= index(distance)) queue_.resize(index(distance) + 1);
  queue_[index(distance)].push_back(node_id);
  return true;
}

// The nearest group with room, or -1; prices are up to date after it.
std::int32_t PartFlow::search(std::int32_t source) {
  ++search_;
  visited_.clear();
  for (auto& level : queue_) level.clear();
  label(source, 0, kNoPlace);
  std::int32_t found = -1;
  std::int32_t found_at = kUnlimited;
  for (std::int32_t distance = 0;
       distance < found_at && index(distance) < queue_.size() && found_at > distance; ++distance) {
    // The level grows while it is walked.
    for (std::size_t i = 0; i < queue_[index(distance)].size() && found_at > distance; ++i) {
      const std::int32_t id = queue_[index(distance)][i];
      const Node& node = nodes_[index(id)];
      if (node.distance != distance) continue;  // reached more cheaply since
      const std::int32_t base = distance + price(node);
      if (id < groups_) {
        for (const std::int32_t place : places_of(id)) {
          const std::int32_t group = group_of(place);
          const std::int32_t load = load_[index(group)];
          if (load < 0) continue;
          const std::int32_t cost = parts_[index(place)] < free_parts(place) ? 0 : 1;
          const std::int32_t reached = base + cost - price(nodes_[index(groups_ + group)]);
          if (reached >= found_at || !label(groups_ + group, reached, place)) continue;
          if (load < depth_) {
            found = group;
            found_at = reached;
            if (reached == distance) break;
          }
        }
      } else {
        const std::int32_t first = (id - groups_) * redundancy_;
        for (std::int32_t place = first; place < first + redundancy_; ++place) {
          if (parts_[index(place)] == 0) continue;
          const std::int32_t type = types_[index(place)];
          const std::int32_t cost = parts_[index(place)] > free_parts(place) ? -1 : 0;
          const std::int32_t reached = base + cost - price(nodes_[index(type)]);
          if (reached < found_at) label(type, reached, place);
        }
      }
    }
  }
  if (found < 0) {
    std::int64_t types = 0;
    for (const std::int32_t id : visited_) types += id < groups_ ? 1 : 0;
    const std::int64_t hosts = static_cast<std::int64_t>(visited_.size()) - types;
    PRISM_CHECK(hosts > 0);  // a type without a live host is a wipe-out, found before
    needed_depth_ = static_cast<std::int32_t>((types * parts_per_type_ + hosts - 1) / hosts);
    PRISM_CHECK(needed_depth_ > depth_);
    return -1;
  }
  for (const std::int32_t id : visited_) {
    Node& node = nodes_[index(id)];
    if (node.distance < found_at) set_price(node, price(node) + node.distance - found_at);
  }
  return found;
}

// Sends as many parts as the path found carries, at most `most`; their number.
std::int32_t PartFlow::push(std::int32_t type, std::int32_t group, std::int32_t most) {
  most = std::min(most, depth_ - load_[index(group)]);
  for (std::int32_t at = group;;) {
    const std::int32_t in = nodes_[index(groups_ + at)].from;
    const std::int32_t spare = free_parts(in) - parts_[index(in)];
    if (spare > 0) most = std::min(most, spare);
    const std::int32_t middle = types_[index(in)];
    if (middle == type) break;
    const std::int32_t out = nodes_[index(middle)].from;
    const std::int32_t beyond = parts_[index(out)] - free_parts(out);
    most = std::min(most, beyond > 0 ? beyond : parts_[index(out)]);
    at = group_of(out);
  }
  PRISM_CHECK(most > 0);
  for (std::int32_t at = group;;) {
    const std::int32_t in = nodes_[index(groups_ + at)].from;
    change(in, most);
    const std::int32_t middle = types_[index(in)];
    if (middle == type) break;
    const std::int32_t out = nodes_[index(middle)].from;
    change(out, -most);
    at = group_of(out);
  }
  load_[index(group)] += most;
  return most;
}

}  // namespace prism::spare
