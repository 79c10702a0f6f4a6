// One life, stepped from its first training step to its last.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "spare/failure_clock.h"
#include "spare/life_options.h"
#include "spare/life_result.h"
#include "spare/policy.h"
#include "spare/random_stream.h"
#include "spare/spare_pool.h"
#include "spare/step_time.h"

namespace prism::spare {

class LifeRun {
 public:
  LifeRun(const LifeOptions& options, const Placement* placement, std::uint64_t seed,
          const std::atomic<bool>& stopped);
  // Returns early, with a life that is not finished, once `stopped` is set.
  LifeTrial run();

 private:
  enum class End : std::uint8_t { kCommitted, kWipedOut };

  End step();
  // Survivors compute `work`, then meet in an all-reduce. True: it went through.
  bool phase(Workload& work, bool patch);
  // Fills failed_, moves now_ns_ to where the slowest survivor meets the others; gives its load.
  std::int32_t compute(Workload& work);
  void add_failures_in_allreduce();
  void charge_compute(std::int64_t elapsed_ns, std::int32_t fullest, bool patch);
  Reaction react();
  void charge_reaction(Reaction::Kind kind);
  void checkpoint();
  void restart();
  std::int64_t restart_until_all_are_up();
  void rejoin();
  void keep_pending();
  double availability() const;
  std::int32_t leader();
  bool out_of_bounds() const;  // or stopped

  void charge(TimePart part, std::int64_t ns);
  void note(EventKind kind, std::int64_t value);

  const LifeOptions& options_;
  const std::atomic<bool>& stopped_;
  std::int64_t limit_ns_;
  std::unique_ptr<FaultPolicy> policy_;
  FailureClock clock_;
  StepTime step_time_;
  SparePool pool_;
  LifeTrial trial_;
  TimeSplit pending_;  // of steps since the last checkpoint: work or rework, not yet known

  std::int64_t now_ns_ = 0;
  std::int64_t step_ = 0;
  std::int64_t saved_step_ = 0;     // where a restart begins
  std::int64_t counted_steps_ = 0;  // steps whose time counts as work already
  std::int64_t step_parts_ = 0;     // of the slowest survivor, this step
  std::int64_t endured_ = 0;        // since the last restart
  std::vector<std::uint8_t> down_;
  std::vector<std::int32_t> due_;
  std::vector<std::int32_t> failed_;
  std::vector<std::int32_t> joining_;
  std::vector<std::int64_t> ready_ns_;  // of a restart, by group
};

}  // namespace prism::spare
