// What failed ranks leave behind.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace prism {

// A rank that did not come to the end of its program before it failed.
struct FailedRank {
  std::uint32_t rank = 0;
  std::int64_t at_ns = 0;
  friend bool operator==(const FailedRank&, const FailedRank&) = default;
};

struct WaitingRank {
  std::uint32_t rank = 0;
  std::uint64_t op = 0;  // of its program, from 0
  std::string call_site;
  std::int64_t since_ns = 0;  // when its device came to the op
  friend bool operator==(const WaitingRank&, const WaitingRank&) = default;
};

// A collective or message that never ends, and those whose first such op it is.
struct Wait {
  std::string communicator;
  std::string op;
  std::uint64_t number = 0;  // collective: of the communicator, from 0
  bool message = false;
  std::vector<std::uint32_t> missing;  // ranks that have not come, or failed on the way
  std::vector<std::uint32_t> failed;   // whose failure is behind it, through others or not
  std::vector<WaitingRank> ranks;
  friend bool operator==(const Wait&, const Wait&) = default;
};

struct FailureReport {
  std::vector<FailedRank> failed;
  std::vector<Wait> waits;                // none: all others ended their programs
  std::vector<std::uint32_t> iterations;  // that each rank ended, by the order of ranks
  friend bool operator==(const FailureReport&, const FailureReport&) = default;
};

}  // namespace prism
