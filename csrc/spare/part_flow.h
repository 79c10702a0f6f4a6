// Parts of shard types spread over the groups that host them: a flow that is repaired, at least
// change, where groups are lost or the depth changes.
//
// A place is a (group, position in its stack): the edge between a group and a type that it hosts.
// Nodes of the residual graph are types and groups, so its size does not depend on how many parts
// a type has. Successive shortest paths from what survives give the least cost (part_flow.cc).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spare/placement.h"

namespace prism::spare {

class PartFlow {
 public:
  // What a place takes at no cost. kFirstTypes: one part, where its rank in the group's order (set
  // by set_rank) is below the depth. kSameParts: as many as when the change began.
  enum class Kept : std::uint8_t { kFirstTypes, kSameParts };

  struct Change {
    std::int32_t place;
    std::int32_t before;  // parts
  };

  PartFlow(const Placement& placement, std::int32_t parts_per_type, Kept kept);

  std::int32_t parts(std::int32_t place) const { return places_[index(place)].parts; }
  std::int32_t load(std::int32_t group) const { return alive(group) ? load_[index(group)] : 0; }
  bool alive(std::int32_t group) const { return load_[index(group)] >= 0; }
  std::int32_t group_of(std::int32_t place) const { return place / redundancy_; }
  std::int32_t type_of(std::int32_t place) const { return types_[index(place)]; }
  // Where the type is hosted, in the order of its hosts.
  std::span<const std::int32_t> places_of(std::int32_t type) const {
    return std::span(hosted_).subspan(index(type) * index(redundancy_), index(redundancy_));
  }
  std::int32_t rank(std::int32_t place) const { return places_[index(place)].kept; }
  void set_rank(std::int32_t place, std::int32_t rank) { places_[index(place)].kept = rank; }

  // A change: begin, then remove, restore and place_all, then finish. Nothing else allocates.
  void begin();
  // The group is down and its parts are unplaced.
  void remove(std::int32_t group);
  // The group is up and owns nothing.
  void restore(std::int32_t group);
  // A type starts without a place for so many of its parts.
  void leave_unplaced(std::int32_t type, std::int32_t parts) { removed_.push_back({type, parts}); }
  // Places everything that is unplaced or lies above `depth`, at the least cost. False: impossible,
  // and undone; `needed_depth` is then a depth below which it is impossible too.
  bool place_all(std::int32_t depth);
  std::int32_t needed_depth() const { return needed_depth_; }
  // Every place that may hold other parts than at begin(), once.
  std::span<const Change> changes() const { return changes_; }
  void finish();

  // All groups up, `parts` of every place and their depth, as at the start of a life.
  void assign(std::span<const std::int32_t> parts, std::int32_t depth);

 private:
  struct Place {
    std::int32_t parts = 0;
    std::int32_t kept = 0;  // rank, or parts at begin()
  };
  struct Host {
    std::int32_t place;
    std::int32_t group;
  };
  struct Node {
    std::uint32_t seen = 0;  // the search that labelled it last
    std::int32_t distance = 0;
    std::int32_t from = 0;  // the place by which it was reached
    std::int32_t price = 0;
  };
  struct Unplaced {
    std::int32_t type;
    std::int32_t parts;
  };

  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
  std::int32_t free_parts(const Place& place) const;
  std::span<const Host> live_hosts(std::int32_t type) const {
    return {&live_[index(type) * index(redundancy_)], index(live_count_[index(type)])};
  }
  void list_live(std::int32_t type);
  void clear_prices();
  void change(std::int32_t place, std::int32_t by);
  void trim();
  void undo();
  void place_unchanged(Unplaced& source);
  void place_beside(Unplaced& source);
  bool place_by_paths(Unplaced& source);
  std::int32_t search(std::int32_t type);
  bool label(std::int32_t node, std::int32_t distance, std::int32_t from);
  std::int32_t push(std::int32_t type, std::int32_t group, std::int32_t most);

  std::int32_t groups_;
  std::int32_t redundancy_;
  std::int32_t parts_per_type_;
  Kept rule_;
  std::int32_t depth_ = 0;          // of the running place_all
  std::int32_t settled_depth_ = 0;  // when the change began
  std::int32_t needed_depth_ = 0;
  bool room_added_ = false;  // by restore(), since prices were cleared

  std::vector<std::int32_t> types_;       // by place
  std::vector<Place> places_;             // by place
  std::vector<std::int32_t> hosted_;      // places by type
  std::vector<Host> live_;                // by type: those whose group is up, in the same order
  std::vector<std::int32_t> live_count_;  // by type
  std::vector<std::int32_t> load_;        // by group; -1: down

  std::uint32_t change_ = 0;
  std::vector<std::uint32_t> changed_;  // by place: the change that touched it last
  std::vector<Change> changes_;
  std::vector<Unplaced> removed_;   // by remove()
  std::vector<Unplaced> unplaced_;  // of this place_all

  std::uint32_t placing_ = 0;  // counts place_all
  std::uint32_t search_ = 0;
  std::vector<Node> nodes_;  // types, then groups
  std::vector<std::int32_t> visited_;
  std::vector<std::vector<std::int32_t>> queue_;  // by distance
  std::vector<std::int32_t> added_;               // by group: parts added by place_beside
  std::vector<std::uint32_t> added_in_;           // the placing that counted it
};

}  // namespace prism::spare
