#include "spare/domains.h"

#include <algorithm>
#include <numeric>

#include "spare/difference_set.h"
#include "spare/golomb.h"
#include "spare/random.h"

namespace prism::spare {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Groups in the order of the circle: a domain's groups are neighbours, larger domains first.
struct Circle {
  std::vector<std::int32_t> group;      // by position
  std::vector<std::int32_t> domain_of;  // by group, 0 to domains - 1
  std::int32_t largest = 0;             // groups of the largest domain
};

Circle arrange(std::span<const std::int32_t> domain_of_group) {
  std::vector<std::int32_t> names(domain_of_group.begin(), domain_of_group.end());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  Circle circle;
  std::vector<std::int32_t> sizes(names.size(), 0);
  for (const std::int32_t name : domain_of_group) {
    const auto found = std::lower_bound(names.begin(), names.end(), name);
    circle.domain_of.push_back(static_cast<std::int32_t>(found - names.begin()));
    ++sizes[at(circle.domain_of.back())];
  }
  circle.largest = *std::max_element(sizes.begin(), sizes.end());
  circle.group.resize(domain_of_group.size());
  std::iota(circle.group.begin(), circle.group.end(), 0);
  std::stable_sort(circle.group.begin(), circle.group.end(), [&](std::int32_t a, std::int32_t b) {
    const std::int32_t da = circle.domain_of[at(a)];
    const std::int32_t db = circle.domain_of[at(b)];
    return sizes[at(da)] != sizes[at(db)] ? sizes[at(da)] > sizes[at(db)] : da < db;
  });
  return circle;
}

// Marks beyond `allowed` in the windows of `width` positions that start at a mark.
std::int32_t crowding(std::vector<std::int32_t>& marks, std::int32_t circle, std::int32_t width,
                      std::int32_t allowed) {
  std::sort(marks.begin(), marks.end());
  const auto count = static_cast<std::int32_t>(marks.size());
  std::int32_t sum = 0;
  for (std::int32_t i = 0; i < count; ++i) {
    std::int32_t inside = 1;
    while (inside < count) {
      const std::int32_t j = i + inside;
      const std::int32_t mark = j < count ? marks[at(j)] : marks[at(j - count)] + circle;
      if (mark - marks[at(i)] >= width) break;
      ++inside;
    }
    sum += std::max(0, inside - allowed);
  }
  return sum;
}

// Among the multiples of the rulers that fit the circle, the one whose shifts crowd domains least.
// Multiplying by a number coprime to the circle keeps all differences distinct.
std::vector<std::int32_t> least_crowded(std::int32_t groups, std::int32_t redundancy,
                                        std::int32_t width, std::int32_t allowed, Pulse& pulse) {
  std::vector<std::int32_t> best;
  std::int32_t least = 0;
  std::vector<std::int32_t> scaled(at(redundancy));
  for (const std::vector<std::int32_t>& ruler : rulers_for(groups, redundancy)) {
    std::int32_t tried = 0;
    for (std::int32_t factor = 1; factor <= groups / 2 && tried < 2048; ++factor) {
      if (!coprime(factor, groups)) continue;
      ++tried;
      pulse.beat((8 + std::int64_t{width} * redundancy / groups) * redundancy);
      std::transform(ruler.begin(), ruler.end(), scaled.begin(), [&](std::int32_t mark) {
        return static_cast<std::int32_t>(std::int64_t{mark} * factor % groups);
      });
      const std::int32_t crowded = crowding(scaled, groups, width, allowed);
      if (best.empty() || crowded < least) {
        best = scaled;
        least = crowded;
        if (least == 0) return best;
      }
    }
  }
  return best;
}

// Stacks that can be improved by swapping two groups' types within one place of the stack: places
// stay permutations, groups and types keep their degree.
class Exchange {
 public:
  Exchange(const Circle& circle, std::int32_t redundancy, std::int32_t allowed, Pulse& pulse)
      : circle_(circle),
        groups_(static_cast<std::int32_t>(circle.group.size())),
        redundancy_(redundancy),
        allowed_(allowed),
        pulse_(pulse),
        stamped_(circle.group.size(), 0) {}

  void shift(std::span<const std::int32_t> marks) {
    stacks_.resize(at(groups_) * at(redundancy_));
    host_.resize(stacks_.size());
    for (std::int32_t position = 0; position < groups_; ++position) {
      pulse_.beat(redundancy_);
      for (std::int32_t place = 0; place < redundancy_; ++place) {
        const std::int32_t other = (position + marks[at(place)]) % groups_;
        set(circle_.group[at(position)], place, circle_.group[at(other)]);
      }
    }
  }

  // Swaps types out of crowded domains; whether all are within what is allowed. The first swaps are
  // the best of many, the rest of a large placement takes any.
  bool separate() {
    Draw draw(1);
    std::int64_t budget = 8'000'000 / (redundancy_ * redundancy_);
    for (std::int32_t round = 0; round < 8; ++round) {
      bool crowded = false;
      for (std::int32_t type = 0; type < groups_; ++type) {
        for (std::int32_t place = 0; place < redundancy_; ++place) {
          pulse_.beat(redundancy_);
          const std::int32_t group = host(type, place);
          if (in_domain(type, domain(group)) <= allowed_) continue;
          crowded = true;
          swap_best(group, place, draw, budget-- > 0 ? Accept::kBest : Accept::kAny);
        }
      }
      if (!crowded) return true;
    }
    return false;
  }

  // Swaps that lower the number of groups that share more than one type.
  void spread() {
    Draw draw(2);
    std::int64_t budget = 2'000'000 / (redundancy_ * redundancy_) + 256;
    for (std::int32_t round = 0; round < 8 && budget > 0; ++round) {
      bool better = false;
      for (std::int32_t group = 0; group < groups_ && budget > 0; ++group) {
        for (std::int32_t place = 0; place < redundancy_ && budget > 0; ++place) {
          pulse_.beat(std::int64_t{redundancy_} * redundancy_);
          if (--budget; excess(group, type(group, place), group) > 0) {
            better |= swap_best(group, place, draw, Accept::kBetter);
            budget -= kTries;
          }
        }
      }
      if (!better) return;
    }
  }

  std::vector<std::int32_t> take() { return std::move(stacks_); }

 private:
  enum class Accept : std::uint8_t { kAny, kBest, kBetter };
  static constexpr std::int32_t kTries = 48;

  std::int32_t domain(std::int32_t group) const { return circle_.domain_of[at(group)]; }
  std::int32_t type(std::int32_t group, std::int32_t place) const {
    return stacks_[at(std::int64_t{group} * redundancy_ + place)];
  }
  std::int32_t host(std::int32_t type, std::int32_t place) const {
    return host_[at(std::int64_t{type} * redundancy_ + place)];
  }
  void set(std::int32_t group, std::int32_t place, std::int32_t type) {
    stacks_[at(std::int64_t{group} * redundancy_ + place)] = type;
    host_[at(std::int64_t{type} * redundancy_ + place)] = group;
  }
  bool hosts(std::int32_t group, std::int32_t wanted) const {
    for (std::int32_t i = 0; i < redundancy_; ++i) {
      if (type(group, i) == wanted) return true;
    }
    return false;
  }
  std::int32_t in_domain(std::int32_t type, std::int32_t domain_) const {
    std::int32_t count = 0;
    for (std::int32_t i = 0; i < redundancy_; ++i)
      count += domain(host(type, i)) == domain_ ? 1 : 0;
    return count;
  }
  // Types shared beyond the first by `group` and the other hosts of `type`, `without` left out.
  std::int32_t excess(std::int32_t group, std::int32_t type_, std::int32_t without) {
    ++stamp_;
    for (std::int32_t i = 0; i < redundancy_; ++i) stamped_[at(type(group, i))] = stamp_;
    std::int32_t sum = 0;
    for (std::int32_t i = 0; i < redundancy_; ++i) {
      const std::int32_t other = host(type_, i);
      if (other == group || other == without) continue;
      std::int32_t shared = 0;
      for (std::int32_t j = 0; j < redundancy_; ++j) {
        shared += stamped_[at(type(other, j))] == stamp_ ? 1 : 0;
      }
      sum += std::max(0, shared - 1);
    }
    return sum;
  }
  void swap(std::int32_t a, std::int32_t b, std::int32_t place) {
    const std::int32_t of_a = type(a, place);
    set(a, place, type(b, place));
    set(b, place, of_a);
  }
  // Looks for a group to swap with, in another domain unless the swap is for the better: the first
  // that domains allow, the one that shares fewest types, or that one if it lowers their number.
  bool swap_best(std::int32_t group, std::int32_t place, Draw& draw, Accept accept) {
    const bool always = accept != Accept::kBetter;
    const std::int32_t mine = type(group, place);
    std::int32_t best = -1;
    std::int32_t least = 0;
    for (std::int32_t i = 0; i < (always ? 4 : 1) * kTries; ++i) {
      pulse_.beat(4 * redundancy_);
      const std::int32_t other = draw.below(groups_);
      const std::int32_t theirs = type(other, place);
      if (other == group || hosts(other, mine) || hosts(group, theirs)) continue;
      const bool same = domain(other) == domain(group);
      if (!same && (in_domain(mine, domain(other)) >= allowed_ ||
                    in_domain(theirs, domain(group)) >= allowed_)) {
        continue;
      }
      if (same && always) continue;
      if (accept == Accept::kAny) {
        swap(group, other, place);
        return true;
      }
      pulse_.beat(4 * std::int64_t{redundancy_} * redundancy_);
      std::int32_t change = -excess(group, mine, other) - excess(other, theirs, group);
      swap(group, other, place);
      change += excess(group, theirs, other) + excess(other, mine, group);
      swap(group, other, place);
      if (best < 0 || change < least) {
        best = other;
        least = change;
      }
    }
    if (best < 0 || (!always && least >= 0)) return false;
    swap(group, best, place);
    return true;
  }

  const Circle& circle_;
  std::int32_t groups_;
  std::int32_t redundancy_;
  std::int32_t allowed_;
  Pulse& pulse_;
  std::vector<std::int32_t> stacks_;  // by group, then place
  std::vector<std::int32_t> host_;    // by type, then place
  std::uint32_t stamp_ = 0;
  std::vector<std::uint32_t> stamped_;  // by type
};

}  // namespace

std::int32_t fewest_hosts_in_domain(std::int32_t redundancy,
                                    std::span<const std::int32_t> domain_of_group) {
  const auto groups = static_cast<std::int64_t>(domain_of_group.size());
  const std::int64_t hosted = std::int64_t{arrange(domain_of_group).largest} * redundancy;
  return static_cast<std::int32_t>((hosted + groups - 1) / groups);
}

std::vector<std::int32_t> domain_stacks(std::int32_t redundancy,
                                        std::span<const std::int32_t> domain_of_group,
                                        Pulse& pulse) {
  const Circle circle = arrange(domain_of_group);
  const auto groups = static_cast<std::int32_t>(domain_of_group.size());
  const std::int32_t allowed = fewest_hosts_in_domain(redundancy, domain_of_group);
  Exchange exchange(circle, redundancy, allowed, pulse);
  const std::vector<std::int32_t> ruler =
      least_crowded(groups, redundancy, circle.largest, allowed, pulse);
  if (!ruler.empty()) {
    exchange.shift(ruler);
    if (exchange.separate()) {
      exchange.spread();
      return exchange.take();
    }
  }
  // Marks as far apart as they go: a window of s positions holds at most ceil(s r / N) of them, so
  // that domains are always within what is allowed, but many types are shared.
  std::vector<std::int32_t> even(at(redundancy));
  for (std::int32_t i = 0; i < redundancy; ++i) {
    even[at(i)] = static_cast<std::int32_t>(std::int64_t{i} * groups / redundancy);
  }
  exchange.shift(even);
  exchange.spread();
  return exchange.take();
}

}  // namespace prism::spare
