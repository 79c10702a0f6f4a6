#include "comm/comm.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "bind/bind.h"
#include "comm/channels.h"
#include "comm/cluster.h"
#include "comm/layout.h"
#include "comm/model.h"
#include "comm/ring.h"
#include "comm/traffic.h"
#include "comm/tree.h"

namespace prism::bind {
namespace {

template <class Enum>
Enum by_name(std::string_view text, int last, const char* what) {
  for (int i = 0; i <= last; ++i) {
    const auto value = static_cast<Enum>(i);
    if (name(value) == text) return value;
  }
  throw GraphError(std::string(what) + ": found '" + std::string(text) +
                   "', which is not the name of one");
}

Reduction reduction_of(std::string_view text) {
  constexpr std::string_view names[] = {"sum", "prod", "max", "min", "avg", "premul_sum"};
  for (std::uint8_t i = 0; i < 6; ++i) {
    if (names[i] == text) return static_cast<Reduction>(i);
  }
  throw GraphError("reduction: found '" + std::string(text) +
                   "', expected sum, prod, max, min, avg or premul_sum");
}

OpKind kind_of(std::string_view text) { return by_name<OpKind>(text, 255, "collective"); }
Algorithm algorithm_of(std::string_view text) { return by_name<Algorithm>(text, 7, "algorithm"); }

const ChannelGraphs& graphs_of(const NodeLayout& layout, const ClusterProfile& cluster) {
  return layout.nodes() == 1 ? cluster.one_node : cluster.multi_node;
}

DataType dtype_of(std::string_view text) { return by_name<DataType>(text, 255, "dtype"); }

using CostTuple = std::tuple<std::string_view, std::string_view, std::int32_t, std::int64_t>;

CostTuple as_tuple(const CommCost& cost) {
  return {name(cost.algorithm), name(cost.protocol), cost.channels, cost.duration_ns};
}

}  // namespace

void init_comm(nb::module_& m) {
  nb::enum_<TreePattern>(m, "TreePattern")
      .value("tree", TreePattern::tree)
      .value("balanced", TreePattern::balanced)
      .value("split", TreePattern::split);
  nb::enum_<CpuVendor>(m, "CpuVendor")
      .value("intel", CpuVendor::intel)
      .value("amd", CpuVendor::amd)
      .value("other", CpuVendor::other);
  nb::enum_<IntraLink>(m, "IntraLink")
      .value("nvlink", IntraLink::nvlink)
      .value("pci", IntraLink::pci);
  nb::class_<ChannelGraph>(m, "ChannelGraph")
      .def(nb::init<>())
      .def_rw("channels", &ChannelGraph::channels)
      .def_rw("intra_gbps", &ChannelGraph::intra_gbps)
      .def_rw("inter_gbps", &ChannelGraph::inter_gbps);
  nb::class_<Calibration>(m, "Calibration")
      .def(nb::init<>())
      .def_rw("bandwidth_efficiency", &Calibration::bandwidth_efficiency)
      .def_rw("extra_latency_us", &Calibration::extra_latency_us)
      .def_rw("ring_fill_steps", &Calibration::ring_fill_steps);
  nb::class_<ChannelGraphs>(m, "ChannelGraphs")
      .def(nb::init<>())
      .def_rw("ring", &ChannelGraphs::ring)
      .def_rw("tree", &ChannelGraphs::tree)
      .def_rw("nvls", &ChannelGraphs::nvls)
      .def_rw("same_channels", &ChannelGraphs::same_channels)
      .def_rw("calibration", &ChannelGraphs::calibration);
  nb::class_<ClusterProfile>(m, "ClusterProfile")
      .def(nb::init<>())
      .def_rw("name", &ClusterProfile::name)
      .def_rw("gpus_per_node", &ClusterProfile::gpus_per_node)
      .def_rw("compute_capability", &ClusterProfile::compute_capability)
      .def_rw("cpu", &ClusterProfile::cpu)
      .def_rw("intra_link", &ClusterProfile::intra_link)
      .def_rw("tree_pattern", &ClusterProfile::tree_pattern)
      .def_rw("one_node", &ClusterProfile::one_node)
      .def_rw("multi_node", &ClusterProfile::multi_node)
      .def_rw("network_latency_us", &ClusterProfile::network_latency_us)
      .def_rw("ll128", &ClusterProfile::ll128)
      .def_rw("nvls", &ClusterProfile::nvls)
      .def_rw("collnet", &ClusterProfile::collnet)
      .def_rw("nvls_channels", &ClusterProfile::nvls_channels)
      .def_rw("nvls_channels_multi_node", &ClusterProfile::nvls_channels_multi_node)
      .def_rw("nvlink_gbps", &ClusterProfile::nvlink_gbps)
      .def_rw("nic_gbps", &ClusterProfile::nic_gbps)
      .def_rw("p2p_intra_latency_us", &ClusterProfile::p2p_intra_latency_us)
      .def_rw("p2p_inter_latency_us", &ClusterProfile::p2p_inter_latency_us)
      .def_rw("p2p_channels", &ClusterProfile::p2p_channels)
      .def_rw("p2p_channels_per_peer", &ClusterProfile::p2p_channels_per_peer)
      .def_rw("p2p_channels_multi_node", &ClusterProfile::p2p_channels_multi_node)
      .def_rw("p2p_channels_per_peer_multi_node", &ClusterProfile::p2p_channels_per_peer_multi_node)
      .def_rw("eager_bytes", &ClusterProfile::eager_bytes)
      .def_rw("overlap_slowdown", &ClusterProfile::overlap_slowdown);
  nb::class_<CommShape>(m, "CommShape")
      .def(
          "__init__",
          [](CommShape* self, std::uint32_t ranks, std::uint32_t nodes, std::uint32_t most,
             std::uint32_t least) { new (self) CommShape{ranks, nodes, most, least}; },
          nb::arg("ranks"), nb::arg("nodes"), nb::arg("max_ranks_per_node"),
          nb::arg("min_ranks_per_node"))
      .def_ro("ranks", &CommShape::ranks)
      .def_ro("nodes", &CommShape::nodes)
      .def_ro("max_ranks_per_node", &CommShape::max_ranks_per_node)
      .def_ro("min_ranks_per_node", &CommShape::min_ranks_per_node);

  m.def(
      "shape_of",
      [](const std::vector<std::uint32_t>& members, const ClusterProfile& cluster) {
        return shape_of(members, cluster);
      },
      nb::arg("members"), nb::arg("cluster"));
  m.def(
      "collective_cost",
      [](std::string_view kind, std::int64_t bytes, std::string_view dtype,
         std::string_view reduction, const CommShape& shape, const ClusterProfile& cluster) {
        return as_tuple(collective_cost(kind_of(kind), bytes, dtype_of(dtype),
                                        reduction_of(reduction), shape, cluster));
      },
      nb::arg("kind"), nb::arg("bytes"), nb::arg("dtype"), nb::arg("reduction"), nb::arg("shape"),
      nb::arg("cluster"));
  m.def(
      "collective_candidates",
      [](std::string_view kind, std::int64_t bytes, std::string_view dtype,
         std::string_view reduction, const CommShape& shape, const ClusterProfile& cluster) {
        std::vector<CostTuple> out;
        for (const CommCost& cost : collective_candidates(
                 kind_of(kind), bytes, dtype_of(dtype), reduction_of(reduction), shape, cluster)) {
          out.push_back(as_tuple(cost));
        }
        return out;
      },
      nb::arg("kind"), nb::arg("bytes"), nb::arg("dtype"), nb::arg("reduction"), nb::arg("shape"),
      nb::arg("cluster"));
  m.def(
      "p2p_cost",
      [](std::int64_t bytes, bool same_node, const ClusterProfile& cluster) {
        return as_tuple(p2p_cost(bytes, same_node, cluster));
      },
      nb::arg("bytes"), nb::arg("same_node"), nb::arg("cluster"));
  // Structure, in positions of the communicator; Python turns them into global ranks.
  m.def(
      "ring_order",
      [](const std::vector<std::uint32_t>& members, std::uint32_t channel,
         const ClusterProfile& cluster) {
        const NodeLayout layout(members, cluster);
        const RingOptions options{graphs_of(layout, cluster).same_channels, false};
        std::vector<std::uint32_t> order{0};
        while (order.size() < members.size()) {
          order.push_back(ring_links(layout, order.back(), channel, options).next);
        }
        return order;
      },
      nb::arg("members"), nb::arg("channel"), nb::arg("cluster"));
  m.def(
      "tree_parents",
      [](const std::vector<std::uint32_t>& members, std::uint32_t channel, std::uint32_t channels,
         const ClusterProfile& cluster) {
        const NodeLayout layout(members, cluster);
        const TreeOfChannel which = tree_of_channel(channel, channels);
        std::vector<std::int64_t> parents;
        for (std::uint32_t at = 0; at < layout.ranks(); ++at) {
          const std::uint32_t up =
              tree_links(layout, at, which.chain, which.tree, cluster.tree_pattern,
                         graphs_of(layout, cluster).same_channels)
                  .up;
          parents.push_back(up == no_peer ? -1 : std::int64_t{up});
        }
        return parents;
      },
      nb::arg("members"), nb::arg("channel"), nb::arg("channels"), nb::arg("cluster"));
  m.def(
      "communicator_channels",
      [](std::string_view algorithm, const CommShape& shape, const ClusterProfile& cluster) {
        return communicator_channels(algorithm_of(algorithm), shape, cluster);
      },
      nb::arg("algorithm"), nb::arg("shape"), nb::arg("cluster"));
  m.def(
      "traffic",
      [](std::string_view kind, std::string_view algorithm, std::int64_t bytes, std::uint32_t root,
         std::int32_t channels, const std::vector<std::uint32_t>& members,
         const ClusterProfile& cluster) {
        const NodeLayout layout(members, cluster);
        std::vector<std::tuple<std::uint32_t, std::uint32_t, std::int64_t>> out;
        for (const Edge& edge :
             traffic({kind_of(kind), algorithm_of(algorithm), bytes, root, channels}, layout,
                     cluster)) {
          out.emplace_back(edge.from, edge.to, edge.bytes);
        }
        return out;
      },
      nb::arg("kind"), nb::arg("algorithm"), nb::arg("bytes"), nb::arg("root"), nb::arg("channels"),
      nb::arg("members"), nb::arg("cluster"));
  m.def("communicator_bytes", &communicator_bytes, nb::arg("shape"), nb::arg("cluster"));
}

}  // namespace prism::bind
