// Closed forms and the life-time simulator of SPARe.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <utility>

#include "bind/bind.h"
#include "bind/numpy.h"
#include "bind/signals.h"
#include "spare/closed_form.h"
#include "spare/endurance.h"
#include "spare/life.h"
#include "spare/normal.h"

namespace prism::bind {
namespace {

using namespace prism::spare;

void init_closed_form(nb::module_& m) {
  m.def("spare_endured_failures", &endured_failures, nb::arg("groups"), nb::arg("redundancy"));
  m.def(
      "spare_endured_failures_finite",
      [](std::int32_t groups, std::int32_t redundancy) {
        return endured_failures_finite(groups, redundancy, check_signals);
      },
      nb::arg("groups"), nb::arg("redundancy"), nb::call_guard<nb::gil_scoped_release>());
  m.def("spare_replication_endured_failures", &replication_endured_failures, nb::arg("groups"),
        nb::arg("redundancy"));
  m.def(
      "spare_replication_endured_failures_finite",
      [](std::int32_t groups, std::int32_t redundancy) {
        return replication_endured_failures_finite(groups, redundancy, check_signals);
      },
      nb::arg("groups"), nb::arg("redundancy"), nb::call_guard<nb::gil_scoped_release>());
  m.def("spare_mean_depth_bound", &mean_depth_bound, nb::arg("groups"), nb::arg("endured"),
        nb::arg("micro_batches"));
  m.def(
      "spare_mean_depth_finite",
      [](std::int32_t groups, std::int32_t redundancy, std::int32_t micro_batches) {
        return mean_depth_finite(groups, redundancy, micro_batches, check_signals);
      },
      nb::arg("groups"), nb::arg("redundancy"), nb::arg("micro_batches"),
      nb::call_guard<nb::gil_scoped_release>());
  m.def("spare_best_checkpoint_interval", &best_checkpoint_interval, nb::arg("save"),
        nb::arg("between_wipeouts"), nb::arg("restart"));
  m.def("spare_availability", &availability, nb::arg("interval"), nb::arg("save"),
        nb::arg("between_wipeouts"), nb::arg("restart"));
  m.def("spare_time_to_train", &time_to_train, nb::arg("groups"), nb::arg("redundancy"),
        nb::arg("micro_batches"), nb::arg("mtbf"), nb::arg("save"), nb::arg("restart"));
  m.def("spare_best_redundancy", &best_redundancy, nb::arg("groups"));
  m.def("spare_checkpoint_steps", &checkpoint_steps, nb::arg("interval"), nb::arg("depth"),
        nb::arg("layer"), nb::arg("allreduce"));
}

void init_options(nb::module_& m) {
  nb::enum_<Policy>(m, "SparePolicy")
      .value("spare", Policy::kSpare)
      .value("replication", Policy::kReplication)
      .value("checkpoint_only", Policy::kCheckpointOnly);
  nb::enum_<LifetimeKind>(m, "SpareLifetime")
      .value("weibull", LifetimeKind::kWeibull)
      .value("exponential", LifetimeKind::kExponential)
      .value("trace", LifetimeKind::kTrace);
  nb::class_<LifeQuirks>(m, "SpareQuirks")
      .def(nb::init<>())
      .def_rw("availability_ignores_rework", &LifeQuirks::availability_ignores_rework)
      .def_rw("one_layer_per_patch", &LifeQuirks::one_layer_per_patch)
      .def_rw("free_commit_when_covered", &LifeQuirks::free_commit_when_covered)
      .def_rw("half_price_failed_allreduce", &LifeQuirks::half_price_failed_allreduce)
      .def_rw("allreduce_cannot_fail", &LifeQuirks::allreduce_cannot_fail)
      .def_rw("one_charge_per_failure", &LifeQuirks::one_charge_per_failure)
      .def_rw("restart_redoes_a_step", &LifeQuirks::restart_redoes_a_step)
      .def_rw("skip_checkpoint_when_leader_due", &LifeQuirks::skip_checkpoint_when_leader_due)
      .def_rw("clocks_run_while_down", &LifeQuirks::clocks_run_while_down)
      .def_rw("replication_one_failure_per_step", &LifeQuirks::replication_one_failure_per_step)
      .def_rw("replication_jitters_whole_step", &LifeQuirks::replication_jitters_whole_step);
  nb::class_<LifeOptions>(m, "SpareLifeOptions")
      .def(nb::init<>())
      .def_rw("policy", &LifeOptions::policy)
      .def_rw("groups", &LifeOptions::groups)
      .def_rw("redundancy", &LifeOptions::redundancy)
      .def_rw("micro_batches", &LifeOptions::micro_batches)
      .def_rw("steps", &LifeOptions::steps)
      .def_rw("layer_ns", &LifeOptions::layer_ns)
      .def_rw("allreduce_ns", &LifeOptions::allreduce_ns)
      .def_rw("restart_ns", &LifeOptions::restart_ns)
      .def_rw("load_ns", &LifeOptions::load_ns)
      .def_rw("checkpoint_ns", &LifeOptions::checkpoint_ns)
      .def_rw("checkpoint_steps", &LifeOptions::checkpoint_steps)
      .def_rw("reorder_ns", &LifeOptions::reorder_ns)
      .def_rw("shrink_ns", &LifeOptions::shrink_ns)
      .def_rw("jitter", &LifeOptions::jitter)
      .def_prop_rw(
          "jitter_every_group",
          [](const LifeOptions& o) { return o.jitter_draw == JitterDraw::kEveryGroup; },
          [](LifeOptions& o, bool every) {
            o.jitter_draw = every ? JitterDraw::kEveryGroup : JitterDraw::kLargest;
          })
      .def_rw("lifetime", &LifeOptions::lifetime)
      .def_rw("group_mean_ns", &LifeOptions::group_mean_ns)
      .def_rw("shape", &LifeOptions::shape)
      .def(
          "set_trace",
          [](LifeOptions& o, const std::vector<std::pair<std::int32_t, std::int64_t>>& failures) {
            o.lifetime = LifetimeKind::kTrace;
            o.trace.clear();
            for (const auto& [group, time_ns] : failures) o.trace.push_back({group, time_ns});
          },
          nb::arg("failures"))
      .def_rw("domain_groups", &LifeOptions::domain_groups)
      .def_rw("domain_share", &LifeOptions::domain_share)
      .def_prop_rw(
          "repair_ns",
          [](const LifeOptions& o) -> std::optional<std::int64_t> {
            if (o.repair_ns == kNever) return std::nullopt;
            return o.repair_ns;
          },
          [](LifeOptions& o, std::optional<std::int64_t> ns) { o.repair_ns = ns.value_or(kNever); },
          nb::arg("value").none())
      .def_rw("rejoin_ns", &LifeOptions::rejoin_ns)
      .def_rw("spares", &LifeOptions::spares)
      .def_rw("swap_ns", &LifeOptions::swap_ns)
      .def_rw("quirks", &LifeOptions::quirks)
      .def_rw("limit_ns", &LifeOptions::limit_ns)
      .def_rw("first_seed", &LifeOptions::first_seed)
      .def_rw("seeds", &LifeOptions::seeds)
      .def_rw("threads", &LifeOptions::threads)
      .def_rw("record_events", &LifeOptions::record_events)
      .def("check", &LifeOptions::check);
}

void init_trial(nb::module_& m) {
  nb::class_<LifeTrial>(m, "SpareLifeTrial")
      .def_ro("seed", &LifeTrial::seed)
      .def_ro("finished", &LifeTrial::finished)
      .def_ro("steps_done", &LifeTrial::steps_done)
      .def_ro("total_ns", &LifeTrial::total_ns)
      .def_ro("ideal_ns", &LifeTrial::ideal_ns)
      .def_ro("availability", &LifeTrial::availability)
      .def_ro("failures", &LifeTrial::failures)
      .def_ro("restart_failures", &LifeTrial::restart_failures)
      .def_ro("wipeouts", &LifeTrial::wipeouts)
      .def_ro("restarts", &LifeTrial::restarts)
      .def_ro("covered", &LifeTrial::covered)
      .def_ro("reorders", &LifeTrial::reorders)
      .def_ro("rejoined", &LifeTrial::rejoined)
      .def_ro("checkpoints", &LifeTrial::checkpoints)
      .def_ro("endured", &LifeTrial::endured)
      .def_ro("depth_sum", &LifeTrial::depth_sum)
      .def_ro("depth_count", &LifeTrial::depth_count)
      .def_ro("compute_sum", &LifeTrial::compute_sum)
      .def_ro("compute_count", &LifeTrial::compute_count)
      .def_prop_ro("split",
                   [](const LifeTrial& trial) {
                     std::vector<std::pair<std::string_view, std::int64_t>> parts;
                     for (std::size_t i = 0; i < kTimeParts; ++i) {
                       parts.emplace_back(name(static_cast<TimePart>(i)), trial.split.ns[i]);
                     }
                     return parts;
                   })
      .def_prop_ro("events", [](const LifeTrial& trial) {
        std::vector<std::tuple<std::int64_t, std::string_view, std::int64_t>> events;
        events.reserve(trial.events.size());
        for (const LifeEvent& event : trial.events) {
          events.emplace_back(event.time_ns, name(event.kind), event.value);
        }
        return events;
      });
}

}  // namespace

void init_spare_life(nb::module_& m) {
  init_closed_form(m);
  init_options(m);
  init_trial(m);
  m.def(
      "spare_simulate",
      [](const LifeOptions& options, const Placement* placement) {
        nb::gil_scoped_release unlocked;
        return simulate_lives(options, placement, check_signals);
      },
      nb::arg("options"), nb::arg("placement").none());
  m.def(
      "spare_endurance",
      [](const Placement& placement, std::int32_t micro_batches, std::int32_t trials,
         std::uint64_t seed, std::int32_t threads) {
        std::vector<Endurance> results;
        {
          nb::gil_scoped_release unlocked;
          results = endurance(placement, micro_batches, trials, seed, threads, check_signals);
        }
        std::vector<std::int32_t> endured;
        std::vector<double> depths;
        for (const Endurance& result : results) {
          endured.push_back(result.endured);
          depths.push_back(result.mean_depth);
        }
        return std::make_pair(owned_array(std::move(endured)), owned_array(std::move(depths)));
      },
      nb::arg("placement"), nb::arg("micro_batches"), nb::arg("trials"), nb::arg("seed"),
      nb::arg("threads"));
  m.def(
      "spare_largest_normals",
      [](std::uint64_t seed, double count, std::size_t draws) {
        RandomStream stream(seed, Purpose::kJitter, 0);
        std::vector<double> values(draws);
        for (double& value : values) value = largest_normal_draw(stream, count);
        return owned_array(std::move(values));
      },
      nb::arg("seed"), nb::arg("count"), nb::arg("draws"));
  m.def("spare_normal_quantile_above", &normal_quantile_above, nb::arg("tail"));
}

}  // namespace prism::bind
