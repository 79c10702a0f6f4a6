// What is slower, uneven or lost than in the graph. Times are those of the job: 0 is where the
// graph begins.
#pragma once

#include <cstdint>
#include <vector>

namespace prism {

// A kernel of this rank that starts within [from_ns, to_ns) takes floor(duration * factor + 0.5).
// The factors of several entries for one rank multiply.
struct SlowRank {
  std::uint32_t rank = 0;
  double factor = 1.0;
  std::int64_t from_ns = 0, to_ns = INT64_MAX;
};

// The link between two ranks, both ways: messages between them, and collectives in which they are
// neighbours (`exchanging_peers`), take `factor` (at least 1) times as long, rounded as above, if
// the transfer starts within [from_ns, to_ns). Entries for one link multiply; a collective takes
// what the slowest of its links makes of it.
struct SlowLink {
  static constexpr std::uint32_t every = UINT32_MAX;

  std::uint32_t rank = 0;
  std::uint32_t other = every;  // every: all links of `rank`
  double factor = 1.0;
  std::int64_t from_ns = 0, to_ns = INT64_MAX;
};

// Each kernel's duration is multiplied by a lognormal factor of mean 1 that depends on the seed,
// the rank and the kernel's number in the rank's program alone.
struct Jitter {
  std::uint64_t seed = 0;
  double sigma = 0.0;  // of the factor's logarithm; 0: none
};

// The rank is lost at at_ns: nothing of it starts then or later, and what has not ended by then
// never does: kernels, transfers with others, host time. An eager message is delivered if its send
// has ended. Several for one rank: the earliest.
struct RankFailure {
  std::uint32_t rank = 0;
  std::int64_t at_ns = 0;
};

struct Perturbation {
  std::vector<SlowRank> slow_ranks;
  std::vector<SlowLink> slow_links;
  Jitter jitter;
  std::vector<RankFailure> failures;
};

}  // namespace prism
