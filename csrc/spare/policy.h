// How a job meets failures: what groups compute, and what a failure makes of it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "spare/life_options.h"
#include "spare/placement.h"
#include "spare/workload.h"

namespace prism::spare {

struct Reaction {
  enum class Kind : std::uint8_t {
    kCovered,  // what survivors computed holds every shard
    kPatch,    // survivors compute patch() before the all-reduce
    kWipeOut,
  };
  Kind kind;
  std::int32_t endured;  // failures of this call before the one that wipes out, or all of them
};

class FaultPolicy {
 public:
  virtual ~FaultPolicy() = default;

  // In the order in which they fail; only groups in service.
  virtual Reaction fail(std::span<const std::int32_t> groups) = 0;
  virtual void rejoin(std::span<const std::int32_t> groups) = 0;
  // The step is over.
  virtual void commit() = 0;
  // All groups are in service, as at the start.
  virtual void restart() = 0;

  // Parts that make one shard.
  virtual std::int32_t parts() const = 0;
  // Parts that the fullest survivor is planned to compute in a step.
  virtual std::int32_t depth() const = 0;
  // Of an ordinary step, and of what the last reaction makes survivors compute in the running one.
  virtual Workload& work() = 0;
  virtual Workload& patch() = 0;
};

// `placement` is read by the policy `spare` alone.
std::unique_ptr<FaultPolicy> make_policy(const LifeOptions& options, const Placement* placement);

}  // namespace prism::spare
