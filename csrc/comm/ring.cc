#include "comm/ring.h"

namespace prism {

RingLinks ring_links(const NodeLayout& layout, std::uint32_t position, std::uint32_t channel,
                     const RingOptions& options) noexcept {
  const auto channel_on = [&](std::uint32_t node) {
    return options.swap_on_odd_nodes && node % 2 == 1 ? channel ^ 1U : channel;
  };
  const auto visit = [&](std::uint32_t node, std::uint32_t step) {
    return layout.in_order(node, step, channel_on(node), options.same_channels);
  };
  const std::uint32_t node = layout.node_of(position);
  const std::uint32_t nodes = layout.nodes();
  const std::uint32_t step = layout.step_of(position, channel_on(node), options.same_channels);
  const std::uint32_t before = (node + nodes - 1) % nodes;
  const std::uint32_t after = (node + 1) % nodes;
  return {step > 0 ? visit(node, step - 1) : visit(before, layout.size(before) - 1),
          step + 1 < layout.size(node) ? visit(node, step + 1) : visit(after, 0)};
}

}  // namespace prism
