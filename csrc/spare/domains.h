// Stacks that keep the hosts of a type out of each other's failure domain.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spare/poll.h"

namespace prism::spare {

// The fewest hosts of one type in one domain that any placement can reach: a domain of s groups
// hosts s * r types, counted with multiplicity, and there are N.
std::int32_t fewest_hosts_in_domain(std::int32_t redundancy,
                                    std::span<const std::int32_t> domain_of_group);

// Row-major stacks, 1 <= redundancy <= groups. Reaches fewest_hosts_in_domain always.
// Deterministic.
std::vector<std::int32_t> domain_stacks(std::int32_t redundancy,
                                        std::span<const std::int32_t> domain_of_group,
                                        Pulse& pulse);

}  // namespace prism::spare
