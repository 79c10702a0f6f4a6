#include "spare/spare_pool.h"

#include <algorithm>
#include <functional>

namespace prism::spare {

SparePool::SparePool(const LifeOptions& options)
    : spares_(options.spares),
      repair_ns_(options.repair_ns),
      swap_ns_(options.swap_ns),
      ready_(options.spares) {
  waiting_.reserve(static_cast<std::size_t>(options.groups));
  repairs_.reserve(static_cast<std::size_t>(options.groups) +
                   static_cast<std::size_t>(options.spares));
}

void SparePool::fail(std::int32_t group, std::int64_t time_ns) {
  if (!used()) return;
  waiting_.push_back({group, time_ns});
  if (repair_ns_ == kNever) return;
  repairs_.push_back(time_ns + repair_ns_);
  std::push_heap(repairs_.begin(), repairs_.end(), std::greater<>{});
}

void SparePool::collect(std::int64_t now_ns, std::vector<std::int32_t>& groups) {
  while (!repairs_.empty() && repairs_.front() <= now_ns) {
    std::pop_heap(repairs_.begin(), repairs_.end(), std::greater<>{});
    repairs_.pop_back();
    ++ready_;
  }
  std::size_t served = 0;
  while (served < waiting_.size() && ready_ > 0 && waiting_[served].time_ns + swap_ns_ <= now_ns) {
    groups.push_back(waiting_[served].group);
    --ready_;
    ++served;
  }
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(served));
}

void SparePool::restart() {
  waiting_.clear();
  repairs_.clear();
  ready_ = spares_;
}

}  // namespace prism::spare
