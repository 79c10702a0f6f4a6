#include "engine/factor_curve.h"

#include <set>
#include <utility>

namespace prism::engine {

FactorCurve::FactorCurve(std::span<const Window> windows) {
  std::vector<std::pair<std::int64_t, std::size_t>> changes;  // time, window that begins or ends
  for (std::size_t i = 0; i < windows.size(); ++i) {
    if (windows[i].from_ns >= windows[i].to_ns) continue;
    changes.emplace_back(windows[i].from_ns, i);
    changes.emplace_back(windows[i].to_ns, i);
  }
  std::sort(changes.begin(), changes.end());
  std::set<std::size_t> active;
  for (std::size_t k = 0; k < changes.size(); ++k) {
    const auto [time, window] = changes[k];
    if (!active.insert(window).second) active.erase(window);
    if (k + 1 < changes.size() && changes[k + 1].first == time) continue;
    double factor = 1.0;
    for (const std::size_t i : active) factor *= windows[i].factor;
    starts_.push_back(time);
    factors_.push_back(factor);
  }
}

}  // namespace prism::engine
