// The cost model behind collective_cost: what each algorithm and protocol would take.
// After NCCL 2.30.7's tuning model; differences from it are named here and in model.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/comm.h"

namespace prism {

// Equation: T[us] = latency_us + bytes / (1000 * gbps * correction). gbps == 0: not available.
struct CommFigures {
  double latency_us = 0.0;
  double gbps = 0.0;  // algorithm bandwidth: bytes of the larger buffer over time, in 1e9 bytes/s
  bool available() const noexcept { return gbps > 0.0; }
};

// all_reduce, all_gather, reduce_scatter, broadcast, reduce; other kinds are never available.
CommFigures comm_figures(OpKind kind, Algorithm algorithm, Protocol protocol, DataType dtype,
                         Reduction reduction, const CommShape& shape,
                         const ClusterProfile& cluster);

// What the choice is made by (NCCL's own estimate), us.
double choice_time_us(const CommFigures& figures, OpKind kind, Algorithm algorithm,
                      Protocol protocol, std::int64_t bytes, const CommShape& shape,
                      const ClusterProfile& cluster);
// The same with the profile's calibration: the duration, us.
double duration_us(const CommFigures& figures, OpKind kind, Algorithm algorithm, Protocol protocol,
                   std::int64_t bytes, const CommShape& shape, const ClusterProfile& cluster);

// Every algorithm and protocol that could do it, with its duration; in the order of the enums.
std::vector<CommCost> collective_candidates(OpKind kind, std::int64_t bytes, DataType dtype,
                                            Reduction reduction, const CommShape& shape,
                                            const ClusterProfile& cluster);

// One step of send/recv: start-up and hop in us; the wire carries twice the bytes under LL.
double p2p_latency_us(Protocol protocol, bool same_node, const ClusterProfile& cluster) noexcept;
// all_to_all, gather, scatter as grouped send/recv (see p2p.cc).
CommCost grouped_cost(std::int64_t bytes, const CommShape& shape, const ClusterProfile& cluster);

// Rounds to the nearest ns, halves up; saturates at 2^62 ns (146 years).
std::int64_t nanoseconds(double us) noexcept;

}  // namespace prism
