#include "spare/placement.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.h"
#include "spare/domains.h"
#include "spare/golomb.h"
#include "spare/random.h"
#include "spare/words.h"

namespace prism::spare {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::string both(std::int32_t groups, std::int32_t redundancy) {
  return "redundancy " + std::to_string(redundancy) + " on " + counted(groups, "group");
}

void check_sizes(std::int32_t groups, std::int32_t redundancy) {
  if (groups < 1) {
    throw SpareError("placement: found " + counted(groups, "group") + ", expected 1 or more");
  }
  if (redundancy < 1 || redundancy > groups) {
    throw SpareError("placement: found " + both(groups, redundancy) + ", expected 1 to " +
                     std::to_string(groups) + " (a group hosts a type once)");
  }
  if (std::int64_t{groups} * redundancy > std::int64_t{1} << 28) {
    throw SpareError("placement: found " + both(groups, redundancy) +
                     ", expected at most 2^28 hosted types in all");
  }
}

std::vector<std::int32_t> shifted(std::int32_t groups, std::span<const std::int32_t> ruler,
                                  Pulse& pulse) {
  std::vector<std::int32_t> stacks;
  stacks.reserve(at(groups) * ruler.size());
  for (std::int32_t group = 0; group < groups; ++group) {
    pulse.beat(std::ssize(ruler));
    for (const std::int32_t mark : ruler) {
      stacks.push_back(static_cast<std::int32_t>((std::int64_t{group} + mark) % groups));
    }
  }
  return stacks;
}

}  // namespace

std::string_view name(PlacementKind kind) {
  constexpr std::string_view names[] = {"golomb", "spread",      "domains", "random",
                                        "cyclic", "replication", "custom"};
  return names[static_cast<std::size_t>(kind)];
}

Placement::Placement(std::int32_t groups, std::int32_t redundancy, PlacementKind kind,
                     std::vector<std::int32_t> stacks, Pulse& pulse)
    : groups_(groups), redundancy_(redundancy), kind_(kind), stacks_(std::move(stacks)) {
  // By place in the stack, then by group: the order of hosts is that of the ruler's shifts.
  hosts_.resize(stacks_.size());
  std::vector<std::int32_t> filled(at(groups), 0);
  for (std::int32_t place = 0; place < redundancy; ++place) {
    for (std::int32_t group = 0; group < groups; ++group) {
      pulse.beat(1);
      const std::int32_t type = stacks_[at(std::int64_t{group} * redundancy + place)];
      hosts_[at(std::int64_t{type} * redundancy + filled[at(type)]++)] = group;
    }
  }
}

Placement Placement::golomb(std::int32_t groups, std::int32_t redundancy, const Poll& poll) {
  check_sizes(groups, redundancy);
  const std::vector<std::int32_t> ruler = ruler_for(groups, redundancy);
  if (ruler.empty()) {
    const std::string fits = std::to_string(largest_redundancy(groups, poll));
    throw SpareError("golomb placement: found " + both(groups, redundancy) +
                     (redundancy <= kLargestRuler
                          ? ", expected " + std::to_string(groups_needed(redundancy)) +
                                " groups or more (2 x ruler length + 1, so that two types share at "
                                "most one group)"
                          : ", which is more than the largest ruler") +
                     "; " + counted(groups, "group") + (groups == 1 ? " holds" : " hold") +
                     " redundancy " + fits + ", and the cyclic and random placements any");
  }
  Pulse pulse(poll);
  return Placement(groups, redundancy, PlacementKind::kGolomb, shifted(groups, ruler, pulse),
                   pulse);
}

Placement Placement::spread(std::int32_t groups, std::int32_t redundancy, const Poll& poll) {
  check_sizes(groups, redundancy);
  Pulse pulse(poll);
  const std::vector<std::int32_t> ruler = spread_ruler(groups, redundancy, pulse);
  if (std::ssize(ruler) < redundancy) {
    throw SpareError("spread placement: found " + both(groups, redundancy) + ", expected at most " +
                     std::to_string(ruler.size()) +
                     ", as many marks as were found whose differences all differ; the golomb "
                     "placement may hold more");
  }
  return Placement(groups, redundancy, PlacementKind::kSpread, shifted(groups, ruler, pulse),
                   pulse);
}

Placement Placement::cyclic(std::int32_t groups, std::int32_t redundancy, const Poll& poll) {
  check_sizes(groups, redundancy);
  std::vector<std::int32_t> ruler(at(redundancy));
  std::iota(ruler.begin(), ruler.end(), 0);
  Pulse pulse(poll);
  return Placement(groups, redundancy, PlacementKind::kCyclic, shifted(groups, ruler, pulse),
                   pulse);
}

Placement Placement::replication(std::int32_t groups, std::int32_t redundancy, const Poll& poll) {
  check_sizes(groups, redundancy);
  if (groups % redundancy != 0) {
    const std::int32_t below = groups / redundancy * redundancy;
    throw SpareError("replication placement: found " + both(groups, redundancy) +
                     ", expected groups in whole blocks of " + std::to_string(redundancy) + ": " +
                     std::to_string(below) + " or " + std::to_string(below + redundancy));
  }
  Pulse pulse(poll);
  std::vector<std::int32_t> stacks;
  stacks.reserve(at(groups) * at(redundancy));
  for (std::int32_t group = 0; group < groups; ++group) {
    pulse.beat(redundancy);
    const std::int32_t block = group / redundancy * redundancy;
    for (std::int32_t i = 0; i < redundancy; ++i) {
      stacks.push_back(block + (group - block + i) % redundancy);
    }
  }
  return Placement(groups, redundancy, PlacementKind::kReplication, std::move(stacks), pulse);
}

// Starts from shifts of consecutive types and swaps types of two groups within one place of the
// stack wherever neither hosts the other's already. Every place stays a permutation.
Placement Placement::random(std::int32_t groups, std::int32_t redundancy, std::uint64_t seed,
                            const Poll& poll) {
  check_sizes(groups, redundancy);
  Pulse pulse(poll);
  Draw draw(seed);
  std::vector<std::int32_t> renamed(at(groups));
  std::iota(renamed.begin(), renamed.end(), 0);
  for (std::int32_t i = groups - 1; i > 0; --i) {
    std::swap(renamed[at(i)], renamed[at(draw.below(i + 1))]);
  }
  std::vector<std::int32_t> ruler(at(redundancy));
  std::iota(ruler.begin(), ruler.end(), 0);
  std::vector<std::int32_t> stacks = shifted(groups, ruler, pulse);
  for (std::int32_t& type : stacks) type = renamed[at(type)];

  const auto stack_of = [&](std::int32_t group) {
    return std::span(stacks).subspan(at(std::int64_t{group} * redundancy), at(redundancy));
  };
  const std::int64_t swaps = 16 * std::int64_t{groups} * redundancy;
  for (std::int64_t i = 0; i < swaps; ++i) {
    pulse.beat(2 * redundancy);
    const auto a = stack_of(draw.below(groups));
    const auto b = stack_of(draw.below(groups));
    const auto place = at(draw.below(redundancy));
    if (std::find(a.begin(), a.end(), b[place]) != a.end()) continue;
    if (std::find(b.begin(), b.end(), a[place]) != b.end()) continue;
    std::swap(a[place], b[place]);
  }
  return Placement(groups, redundancy, PlacementKind::kRandom, std::move(stacks), pulse);
}

Placement Placement::domains(std::int32_t redundancy, std::span<const std::int32_t> domain_of_group,
                             const Poll& poll) {
  if (domain_of_group.size() > at(std::int64_t{1} << 28)) {
    throw SpareError("placement: found " + std::to_string(domain_of_group.size()) +
                     " groups, expected at most 2^28");
  }
  const auto groups = static_cast<std::int32_t>(domain_of_group.size());
  check_sizes(groups, redundancy);
  Pulse pulse(poll);
  return Placement(groups, redundancy, PlacementKind::kDomains,
                   domain_stacks(redundancy, domain_of_group, pulse), pulse);
}

Placement Placement::custom(std::int32_t groups, std::int32_t redundancy,
                            std::span<const std::int32_t> stacks, const Poll& poll) {
  check_sizes(groups, redundancy);
  if (stacks.size() != at(groups) * at(redundancy)) {
    throw SpareError("placement: found " + std::to_string(stacks.size()) + " entries, expected " +
                     counted(groups, "group") + " x " + counted(redundancy, "type"));
  }
  Pulse pulse(poll);
  std::vector<std::int32_t> hosts(at(groups), 0);
  std::vector<std::int32_t> last(at(groups), -1);
  for (std::int32_t group = 0; group < groups; ++group) {
    pulse.beat(redundancy);
    const std::string where = "placement: group " + std::to_string(group);
    for (std::int32_t i = 0; i < redundancy; ++i) {
      const std::int32_t type = stacks[at(std::int64_t{group} * redundancy + i)];
      if (type < 0 || type >= groups) {
        throw SpareError(where + " hosts type " + std::to_string(type) + ", expected 0 to " +
                         std::to_string(groups - 1));
      }
      if (last[at(type)] == group) {
        throw SpareError(where + " hosts type " + std::to_string(type) + " twice, expected once");
      }
      last[at(type)] = group;
      ++hosts[at(type)];
    }
  }
  for (std::int32_t type = 0; type < groups; ++type) {
    if (hosts[at(type)] != redundancy) {
      throw SpareError("placement: type " + std::to_string(type) + " has " +
                       std::to_string(hosts[at(type)]) + " hosts, expected " +
                       std::to_string(redundancy) + " as every other");
    }
  }
  return Placement(groups, redundancy, PlacementKind::kCustom, {stacks.begin(), stacks.end()},
                   pulse);
}

std::span<const std::int32_t> Placement::stack(std::int32_t group) const {
  return std::span(stacks_).subspan(at(std::int64_t{group} * redundancy_), at(redundancy_));
}

std::span<const std::int32_t> Placement::hosts(std::int32_t type) const {
  return std::span(hosts_).subspan(at(std::int64_t{type} * redundancy_), at(redundancy_));
}

std::int32_t Placement::max_shared(const Poll& poll) const {
  Pulse pulse(poll);
  std::vector<std::int32_t> shared(at(groups_), 0);
  std::int32_t most = 0;
  // Where stacks are shifts of one another, every group sees what the first one sees.
  const bool alike = kind_ == PlacementKind::kGolomb || kind_ == PlacementKind::kSpread ||
                     kind_ == PlacementKind::kCyclic;
  for (std::int32_t group = 0; group < (alike ? 1 : groups_) && most < redundancy_; ++group) {
    pulse.beat(2 * std::int64_t{redundancy_} * redundancy_);
    for (const std::int32_t type : stack(group)) {
      for (const std::int32_t other : hosts(type)) {
        if (other > group) most = std::max(most, ++shared[at(other)]);
      }
    }
    for (const std::int32_t type : stack(group)) {
      for (const std::int32_t other : hosts(type)) shared[at(other)] = 0;
    }
  }
  return most;
}

std::int32_t Placement::max_hosts_in_domain(std::span<const std::int32_t> domain_of_group,
                                            const Poll& poll) const {
  if (domain_of_group.size() != at(groups_)) {
    throw SpareError("placement: found domains of " + std::to_string(domain_of_group.size()) +
                     " groups, expected " + std::to_string(groups_));
  }
  Pulse pulse(poll);
  std::vector<std::int32_t> domains_of_type(at(redundancy_));
  std::int32_t most = 0;
  for (std::int32_t type = 0; type < groups_; ++type) {
    pulse.beat(4 * std::int64_t{redundancy_});
    std::transform(hosts(type).begin(), hosts(type).end(), domains_of_type.begin(),
                   [&](std::int32_t group) { return domain_of_group[at(group)]; });
    std::sort(domains_of_type.begin(), domains_of_type.end());
    std::int32_t run = 0;
    for (std::size_t i = 0; i < domains_of_type.size(); ++i) {
      run = i > 0 && domains_of_type[i] == domains_of_type[i - 1] ? run + 1 : 1;
      most = std::max(most, run);
    }
  }
  return most;
}

}  // namespace prism::spare
