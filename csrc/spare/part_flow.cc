// Least cost. A part costs 1 at a place that does not take it for nothing. Costs of a place are
// convex (free parts first), the flow that survives costs 0, and no cost is negative: so that flow
// is of least cost for what it carries, and each shortest augmenting path keeps it so. Residual
// arcs may cost -1 (a part placed by this change is displaced). Node prices keep reduced costs,
// cost + price(tail) - price(head), at 0 or more; a search is Dijkstra's with a queue by distance.
//
// Prices outlive a change. Minus a price is a lower bound on what a part must cost from that node
// to a group with room. A finished change makes costs higher or leaves them, a failure takes arcs
// and room away: the bounds still hold, and the next search is led by them to where there is room.
// Where the depth changes or a group comes back there is new room: then all prices are 0 again.
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
      hosted_(types_.size()),
      live_(types_.size()),
      live_count_(index(groups_), 0),
      load_(index(groups_), 0),
      changed_(types_.size(), 0),
      nodes_(2 * index(groups_)),
      added_(index(groups_), 0),
      added_in_(index(groups_), 0) {
  // In the order of the placement's hosts: by place in the stack, then by group.
  std::vector<std::int32_t> filled(index(groups_), 0);
  for (std::int32_t position = 0; position < redundancy_; ++position) {
    for (std::int32_t group = 0; group < groups_; ++group) {
      const std::int32_t place = group * redundancy_ + position;
      const std::int32_t type = types_[index(place)];
      hosted_[index(type) * index(redundancy_) + index(filled[index(type)]++)] = place;
    }
  }
}

void PartFlow::assign(std::span<const std::int32_t> parts, std::int32_t depth) {
  PRISM_CHECK(parts.size() == places_.size());
  settled_depth_ = depth_ = depth;
  std::fill(load_.begin(), load_.end(), 0);
  for (std::size_t i = 0; i < places_.size(); ++i) {
    places_[i].parts = parts[i];
    if (rule_ == Kept::kSameParts) places_[i].kept = parts[i];
    load_[i / index(redundancy_)] += parts[i];
  }
  for (std::int32_t type = 0; type < groups_; ++type) list_live(type);
  clear_prices();
}

void PartFlow::list_live(std::int32_t type) {
  Host* live = &live_[index(type) * index(redundancy_)];
  std::int32_t count = 0;
  for (const std::int32_t place : places_of(type)) {
    if (const std::int32_t group = group_of(place); alive(group)) live[count++] = {place, group};
  }
  live_count_[index(type)] = count;
}

void PartFlow::clear_prices() {
  for (Node& node : nodes_) node.price = 0;
}

inline std::int32_t PartFlow::free_parts(const Place& place) const {
  return rule_ == Kept::kFirstTypes ? (place.kept < depth_ ? 1 : 0) : place.kept;
}

inline void PartFlow::change(std::int32_t place, std::int32_t by) {
  if (changed_[index(place)] != change_) {
    changed_[index(place)] = change_;
    changes_.push_back({place, places_[index(place)].parts});
  }
  places_[index(place)].parts += by;
}

void PartFlow::begin() {
  ++change_;
  changes_.clear();
  removed_.clear();
}

void PartFlow::remove(std::int32_t group) {
  for (std::int32_t place = group * redundancy_; place < (group + 1) * redundancy_; ++place) {
    const std::int32_t type = types_[index(place)];
    Host* live = &live_[index(type) * index(redundancy_)];
    std::int32_t& count = live_count_[index(type)];
    const auto gone =
        std::find_if(live, live + count, [&](Host host) { return host.place == place; });
    std::copy(gone + 1, live + count, gone);
    --count;
    const std::int32_t parts = places_[index(place)].parts;
    if (parts == 0) continue;
    removed_.push_back({type, parts});
    change(place, -parts);
  }
  load_[index(group)] = kDown;
}

void PartFlow::restore(std::int32_t group) {
  load_[index(group)] = 0;
  for (std::int32_t place = group * redundancy_; place < (group + 1) * redundancy_; ++place) {
    list_live(types_[index(place)]);
  }
  room_added_ = true;
}

void PartFlow::finish() {
  settled_depth_ = depth_;
  if (rule_ == Kept::kFirstTypes) return;
  for (const Change& change : changes_) {
    Place& place = places_[index(change.place)];
    place.kept = place.parts;
  }
}

// What lies above the depth becomes unplaced: by rank, or from the end of the stack.
void PartFlow::trim() {
  for (std::int32_t group = 0; group < groups_; ++group) {
    if (load_[index(group)] <= 0) continue;
    for (std::int32_t i = redundancy_ - 1; i >= 0; --i) {
      const std::int32_t place = group * redundancy_ + i;
      const auto [parts, kept] = places_[index(place)];
      const std::int32_t above = rule_ == Kept::kFirstTypes
                                     ? (kept < depth_ ? 0 : parts)
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
    std::int32_t& parts = places_[index(change.place)].parts;
    load += change.before - parts;
    parts = change.before;
  }
}

bool PartFlow::place_all(std::int32_t depth) {
  if (depth != depth_ || room_added_) clear_prices();
  room_added_ = false;
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
  for (const auto [place, group] : live_hosts(source.type)) {
    const std::int32_t load = load_[index(group)];
    const Place& here = places_[index(place)];
    if (load >= depth_ || here.parts != 0 || free_parts(here) == 0) continue;
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
// least, and minus the type's price is 1 plus the least of its hosts'.
void PartFlow::place_beside(Unplaced& source) {
  if (source.parts == 0) return;
  std::int32_t highest = -kUnlimited;
  for (const auto [place, group] : live_hosts(source.type)) {
    const Place& here = places_[index(place)];
    if (here.parts < free_parts(here)) return;
    highest = std::max(highest, nodes_[index(groups_ + group)].price);
  }
  nodes_[index(source.type)].price = highest - 1;
  while (source.parts > 0) {
    std::int32_t best = kNoPlace;
    std::int32_t fewest = 0;
    std::int32_t least = 0;
    for (const auto [place, group] : live_hosts(source.type)) {
      const std::int32_t load = load_[index(group)];
      if (load >= depth_) continue;
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
  for (std::int32_t distance = 0; distance < found_at && index(distance) < queue_.size();
       ++distance) {
    // Last in, first out: prices lead onwards to room, so going deep finds it soonest.
    while (!queue_[index(distance)].empty() && found_at > distance) {
      const std::int32_t id = queue_[index(distance)].back();
      queue_[index(distance)].pop_back();
      const Node& node = nodes_[index(id)];
      if (node.distance != distance) continue;  // reached more cheaply since
      const std::int32_t base = distance + node.price;
      if (id < groups_) {
        for (const auto [place, group] : live_hosts(id)) {
          const Place& here = places_[index(place)];
          const std::int32_t cost = here.parts < free_parts(here) ? 0 : 1;
          const std::int32_t reached = base + cost - nodes_[index(groups_ + group)].price;
          if (reached >= found_at || !label(groups_ + group, reached, place)) continue;
          if (load_[index(group)] < depth_) {
            found = group;
            found_at = reached;
            if (reached == distance) break;
          }
        }
      } else {
        const std::int32_t first = (id - groups_) * redundancy_;
        for (std::int32_t place = first; place < first + redundancy_; ++place) {
          const Place& here = places_[index(place)];
          if (here.parts == 0) continue;
          const std::int32_t type = types_[index(place)];
          const std::int32_t cost = here.parts > free_parts(here) ? -1 : 0;
          const std::int32_t reached = base + cost - nodes_[index(type)].price;
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
  PRISM_CHECK(nodes_[index(groups_ + found)].price == 0);  // a bound above the truth else
  for (const std::int32_t id : visited_) {
    Node& node = nodes_[index(id)];
    if (node.distance < found_at) node.price += node.distance - found_at;
  }
  return found;
}

// Sends as many parts as the path found carries, at most `most`; their number.
std::int32_t PartFlow::push(std::int32_t type, std::int32_t group, std::int32_t most) {
  most = std::min(most, depth_ - load_[index(group)]);
  for (std::int32_t at = group;;) {
    const std::int32_t in = nodes_[index(groups_ + at)].from;
    const std::int32_t spare = free_parts(places_[index(in)]) - places_[index(in)].parts;
    if (spare > 0) most = std::min(most, spare);
    const std::int32_t middle = types_[index(in)];
    if (middle == type) break;
    const std::int32_t out = nodes_[index(middle)].from;
    const std::int32_t parts = places_[index(out)].parts;
    const std::int32_t beyond = parts - free_parts(places_[index(out)]);
    most = std::min(most, beyond > 0 ? beyond : parts);
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
