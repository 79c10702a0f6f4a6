// When each group fails next. A renewal process per group, or a trace; some failures take the
// whole failure domain. Earliest and due failures come from a tournament tree over the groups.
#pragma once

#include <cstdint>
#include <vector>

#include "spare/life_options.h"
#include "spare/random_stream.h"

namespace prism::spare {

class FailureClock {
 public:
  FailureClock(const LifeOptions& options, std::uint64_t seed);

  // Groups in service whose next failure is at or before `bound_ns`, ascending; replaces `groups`.
  void due(std::int64_t bound_ns, std::vector<std::int32_t>& groups);
  // The earliest failure of a group in service, the lowest group of equal ones; -1 where none is
  // at or before `bound_ns`.
  std::int32_t earliest(std::int64_t bound_ns);
  std::int64_t next(std::int32_t group) const { return next_[static_cast<std::size_t>(group)]; }

  // The group fails at next(group): it is out of service, its process goes on from there.
  void strike(std::int32_t group);
  // Back in service at `now_ns`. With `fresh` it is new hardware whose life begins now; otherwise
  // what would have failed it while it was out is skipped.
  void revive(std::int32_t group, std::int64_t now_ns, bool fresh);
  // Out of service without failing, and back as it was.
  void hide(std::int32_t group) { set_key(group, kNever); }
  void show(std::int32_t group) { set_key(group, next(group)); }

 private:
  bool in_service(std::int32_t group) const;
  void set_key(std::int32_t group, std::int64_t time_ns);
  std::int32_t earliest_as_it_stands(std::int64_t bound_ns) const;
  // Carries domain failures up to `bound_ns` to the other groups of their domains.
  void spread(std::int64_t bound_ns);
  void renew(std::int32_t group, std::int64_t from_ns);
  std::int64_t lifetime(std::int32_t group);

  std::int32_t groups_;
  LifetimeKind kind_;
  double scale_ns_;
  double exponent_;
  double domain_share_;
  std::int32_t domain_groups_;
  std::size_t leaves_;              // a power of two
  std::vector<std::int64_t> tree_;  // tree_[leaves_ + g]: next_[g], or kNever out of service
  std::vector<std::int64_t> next_;
  std::vector<std::uint8_t> wide_;  // the next failure takes the domain
  std::vector<RandomStream> lifetimes_;
  std::vector<RandomStream> domains_;
  std::vector<std::int64_t> trace_;  // times, by group, ascending
  std::vector<std::size_t> trace_begin_;
  std::vector<std::size_t> cursor_;
};

}  // namespace prism::spare
