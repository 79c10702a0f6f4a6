// Which shard types each data-parallel group hosts.
//
// N groups, N shard types, redundancy r: every group hosts r types (its stack, in order), every
// type has r hosts. SPARe's placement shifts a Golomb ruler around the circle of groups, so that
// two types share at most one group (SPARe, ICML 2026, arXiv 2603.00357, section on placement).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "spare/poll.h"

namespace prism::spare {

enum class PlacementKind : std::uint8_t {
  kGolomb,
  kSpread,
  kDomains,
  kRandom,
  kCyclic,
  kReplication,
  kCustom
};
std::string_view name(PlacementKind kind);

class Placement {
 public:
  // Each throws SpareError where groups and redundancy do not allow the placement. In all but
  // custom, the first types of the stacks are a permutation: at depth 1 every type is computed
  // once. Large ones take long: `poll` is called meanwhile, and what it throws ends the work.
  static Placement golomb(std::int32_t groups, std::int32_t redundancy, const Poll& poll = {});
  // Shifts of marks all over the circle: two types share at most one group as with golomb, and work
  // reaches any group over few others, but fewer marks fit.
  static Placement spread(std::int32_t groups, std::int32_t redundancy, const Poll& poll = {});
  static Placement cyclic(std::int32_t groups, std::int32_t redundancy, const Poll& poll = {});
  // Blocks: r divides N.
  static Placement replication(std::int32_t groups, std::int32_t redundancy, const Poll& poll = {});
  static Placement random(std::int32_t groups, std::int32_t redundancy, std::uint64_t seed,
                          const Poll& poll = {});
  // As few hosts of a type in one failure domain (rack) as can be, which is one where no domain has
  // more than N / r groups; then as few types shared by two groups as the search finds.
  static Placement domains(std::int32_t redundancy, std::span<const std::int32_t> domain_of_group,
                           const Poll& poll = {});
  // The user's own: row-major, `redundancy` types per group.
  static Placement custom(std::int32_t groups, std::int32_t redundancy,
                          std::span<const std::int32_t> stacks, const Poll& poll = {});

  std::int32_t groups() const { return groups_; }
  std::int32_t redundancy() const { return redundancy_; }
  PlacementKind kind() const { return kind_; }
  // The types of a group, in the order in which it computes them.
  std::span<const std::int32_t> stack(std::int32_t group) const;
  // The groups of a type; where a stack's place i follows from a shift, so does a host's.
  std::span<const std::int32_t> hosts(std::int32_t type) const;
  // All stacks, one after the other.
  std::span<const std::int32_t> stacks() const { return stacks_; }
  // The most types that any two groups share; at most 1 exactly when any two types share at most
  // one group.
  std::int32_t max_shared(const Poll& poll = {}) const;
  // The most hosts of one type in one failure domain.
  std::int32_t max_hosts_in_domain(std::span<const std::int32_t> domain_of_group,
                                   const Poll& poll = {}) const;

 private:
  Placement(std::int32_t groups, std::int32_t redundancy, PlacementKind kind,
            std::vector<std::int32_t> stacks, Pulse& pulse);

  std::int32_t groups_;
  std::int32_t redundancy_;
  PlacementKind kind_;
  std::vector<std::int32_t> stacks_;
  std::vector<std::int32_t> hosts_;
};

}  // namespace prism::spare
