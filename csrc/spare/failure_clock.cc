#include "spare/failure_clock.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace prism::spare {
namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

// Longer than any life, short enough to be added to one.
constexpr double kLongestLifetime = 0x1p61;

double scale_of(const LifeOptions& options) {
  if (options.lifetime != LifetimeKind::kWeibull) return options.group_mean_ns;
  return options.group_mean_ns / std::tgamma(1.0 + 1.0 / options.shape);
}

}  // namespace

FailureClock::FailureClock(const LifeOptions& options, std::uint64_t seed)
    : groups_(options.groups),
      kind_(options.lifetime),
      scale_ns_(scale_of(options)),
      exponent_(kind_ == LifetimeKind::kWeibull ? 1.0 / options.shape : 1.0),
      domain_share_(options.domain_groups > 1 ? options.domain_share : 0.0),
      domain_groups_(options.domain_groups),
      leaves_(std::bit_ceil(at(options.groups))),
      tree_(2 * leaves_, kNever),
      next_(at(groups_), kNever),
      wide_(at(groups_), 0) {
  if (kind_ == LifetimeKind::kTrace) {
    std::vector<std::vector<std::int64_t>> times(at(groups_));
    for (const TraceFailure& failure : options.trace) {
      times[at(failure.group)].push_back(failure.time_ns);
    }
    for (std::vector<std::int64_t>& of_group : times) {
      std::sort(of_group.begin(), of_group.end());
      of_group.erase(std::unique(of_group.begin(), of_group.end()), of_group.end());
      trace_begin_.push_back(trace_.size());
      trace_.insert(trace_.end(), of_group.begin(), of_group.end());
    }
    cursor_ = trace_begin_;
    trace_begin_.push_back(trace_.size());
  } else {
    for (std::int32_t group = 0; group < groups_; ++group) {
      const auto index = static_cast<std::uint64_t>(group);
      lifetimes_.emplace_back(seed, Purpose::kLifetime, index);
      domains_.emplace_back(seed, Purpose::kDomain, index);
    }
  }
  for (std::int32_t group = 0; group < groups_; ++group) revive(group, 0, true);
}

std::int64_t FailureClock::lifetime(std::int32_t group) {
  const double drawn = scale_ns_ * std::pow(-std::log(lifetimes_[at(group)].unit()), exponent_);
  return static_cast<std::int64_t>(std::clamp(drawn, 1.0, kLongestLifetime));
}

void FailureClock::renew(std::int32_t group, std::int64_t from_ns) {
  if (kind_ == LifetimeKind::kTrace) {
    std::size_t& cursor = cursor_[at(group)];
    const std::size_t end = trace_begin_[at(group) + 1];
    while (cursor < end && trace_[cursor] < from_ns) ++cursor;
    next_[at(group)] = cursor < end ? trace_[cursor] : kNever;
    return;
  }
  next_[at(group)] = from_ns + lifetime(group);
  wide_[at(group)] = domain_share_ > 0.0 && domains_[at(group)].unit() < domain_share_;
}

void FailureClock::strike(std::int32_t group) {
  const std::int64_t now_ns = next(group);
  set_key(group, kNever);
  renew(group, kind_ == LifetimeKind::kTrace ? now_ns + 1 : now_ns);
}

void FailureClock::revive(std::int32_t group, std::int64_t now_ns, bool fresh) {
  if (fresh || kind_ == LifetimeKind::kTrace) {
    renew(group, now_ns);
  } else {
    while (next(group) < now_ns) renew(group, next(group));
  }
  show(group);
}

bool FailureClock::in_service(std::int32_t group) const {
  return tree_[leaves_ + at(group)] != kNever;
}

void FailureClock::set_key(std::int32_t group, std::int64_t time_ns) {
  std::size_t node = leaves_ + at(group);
  tree_[node] = time_ns;
  while (node > 1) {
    node /= 2;
    const std::int64_t least = std::min(tree_[2 * node], tree_[2 * node + 1]);
    if (tree_[node] == least) break;
    tree_[node] = least;
  }
}

std::int32_t FailureClock::earliest_as_it_stands(std::int64_t bound_ns) const {
  const std::int64_t least = tree_[1];
  if (least > bound_ns || least == kNever) return -1;
  std::size_t node = 1;
  while (node < leaves_) node = tree_[2 * node] == least ? 2 * node : 2 * node + 1;
  return static_cast<std::int32_t>(node - leaves_);
}

std::int32_t FailureClock::earliest(std::int64_t bound_ns) {
  spread(bound_ns);
  return earliest_as_it_stands(bound_ns);
}

void FailureClock::due(std::int64_t bound_ns, std::vector<std::int32_t>& groups) {
  groups.clear();
  spread(bound_ns);
  if (tree_[1] > bound_ns) return;
  // Down to the leaves and on to the right, past subtrees that hold nothing due.
  std::size_t node = 1;
  while (true) {
    if (tree_[node] <= bound_ns && tree_[node] != kNever) {
      if (node < leaves_) {
        node *= 2;
        continue;
      }
      groups.push_back(static_cast<std::int32_t>(node - leaves_));
    }
    while (node % 2 == 1) {
      if (std::has_single_bit(node + 1)) return;  // the right edge of the tree
      node /= 2;
    }
    ++node;
  }
}

void FailureClock::spread(std::int64_t bound_ns) {
  if (domain_share_ == 0.0 || tree_[1] > bound_ns) return;
  // In the order of time, because a domain that fails takes its later failures with it. Once: a
  // group that comes back between now and then is spared.
  while (true) {
    std::int32_t first = -1;
    for (std::int32_t group = 0; group < groups_; ++group) {
      const std::int64_t time_ns = tree_[leaves_ + at(group)];
      if (time_ns <= bound_ns && wide_[at(group)] != 0 && (first < 0 || time_ns < next(first))) {
        first = group;
      }
    }
    if (first < 0) return;
    wide_[at(first)] = 0;
    const std::int64_t now_ns = next(first);
    const std::int32_t begin = first / domain_groups_ * domain_groups_;
    const std::int32_t end = std::min(begin + domain_groups_, groups_);
    for (std::int32_t mate = begin; mate < end; ++mate) {
      if (!in_service(mate) || next(mate) <= now_ns) continue;
      next_[at(mate)] = now_ns;
      wide_[at(mate)] = 0;
      set_key(mate, now_ns);
    }
  }
}

}  // namespace prism::spare
