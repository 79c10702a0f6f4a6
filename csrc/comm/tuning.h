// Constants of NCCL 2.30.7's tuning model: latencies in us, bandwidths in GB/s a channel. Tables
// are indexed [algorithm][protocol] in the order of the enums of comm.h.
#pragma once

#include <array>
#include <cstdint>

namespace prism::tuning {

using PerProtocol = std::array<double, 3>;        // LL, LL128, Simple
using PerAlgorithm = std::array<PerProtocol, 7>;  // tree ... pat
using PerNodes = std::array<double, 3>;           // 1, 2, more nodes
using PerGeneration = std::array<PerNodes, 4>;    // sm70, sm80, sm90, sm100

inline constexpr PerAlgorithm base_latency{{
    {6.8, 14.0, 8.4},  // tree
    {6.6, 14.0, 8.4},  // ring
    {0.0, 0.0, 0.0},   // collnet_direct
    {0.0, 0.0, 0.0},   // collnet_chain
    {0.0, 0.0, 0.0},   // nvls
    {0.0, 0.0, 0.0},   // nvls_tree
    {8.0, 8.0, 8.0},   // pat
}};
inline constexpr PerAlgorithm nvlink_latency{{
    {0.6, 1.25, 4.0},
    {0.6, 1.9, 3.4},
    {0.0, 0.0, 3.7},
    {0.0, 0.0, 2.8},
    {0.0, 0.0, 25.0},
    {0.0, 0.0, 25.0},
    {0.0, 0.0, 4.0},
}};
inline constexpr PerAlgorithm pci_latency{{
    {1.0, 1.9, 4.0},
    {1.0, 2.5, 5.7},
    {0.0, 0.0, 3.7},
    {0.0, 0.0, 2.8},
    {0.0, 0.0, 0.0},
    {0.0, 0.0, 0.0},
    {0.0, 0.0, 4.0},
}};
inline constexpr PerAlgorithm net_latency{{
    {5.0, 8.5, 14.0},
    {2.7, 4.0, 14.0},
    {0.0, 0.0, 31.0},
    {0.0, 0.0, 30.0},
    {0.0, 0.0, 18.0},
    {0.0, 0.0, 20.9},
    {0.0, 0.0, 14.0},
}};

inline constexpr PerGeneration ring_ll128{
    {{20.0, 20.0, 20.0}, {20.0, 20.0, 20.0}, {36.7, 36.7, 36.7}, {40.0, 40.0, 40.0}}};
inline constexpr PerGeneration tree_ll128{
    {{20.0, 20.0, 20.0}, {20.0, 20.0, 20.0}, {36.7, 36.7, 29.0}, {55.6, 31.67, 20.0}}};
inline constexpr PerGeneration tree_max{
    {{26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {38.7, 41.4, 36.0}, {70.0, 42.8, 24.0}}};
inline constexpr PerGeneration nvls_tree_max{
    {{26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {0.0, 57.7, 45.5}, {0.0, 96.0, 80.0}}};
inline constexpr std::array<double, 4> nvls_efficiency{0.0, 0.0, 0.85, 0.74};
inline constexpr std::array<double, 4> ll_max_one_node{39.0, 87.7, 141.0, 282.0};
inline constexpr std::array<double, 2> ll_max_intel{39.0, 20.4};  // 2, more nodes
inline constexpr std::array<double, 2> ll_max_amd{22.5, 19.0};

// Trees fall short of the model at medium sizes: share of the bandwidth reached, by
// floor(log2(bytes / 64)).
inline constexpr std::array<std::array<double, 24>, 3> tree_correction{{
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5,
     .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9},
}};

}  // namespace prism::tuning
