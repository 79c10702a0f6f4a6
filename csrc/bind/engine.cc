#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <utility>
#include <vector>

#include "bind/bind.h"
#include "bind/numpy.h"
#include "engine/alone.h"
#include "engine/exchange.h"
#include "engine/materialised.h"
#include "engine/outside.h"
#include "engine/pacer.h"
#include "engine/playback.h"
#include "engine/port.h"
#include "engine/relay.h"
#include "engine/replay.h"

namespace prism::bind {
namespace {

using Slow = std::tuple<std::uint32_t, double, std::int64_t, std::int64_t>;
using Failure = std::pair<std::uint32_t, std::int64_t>;
using SlowPair = std::tuple<std::uint32_t, std::uint32_t, double, std::int64_t, std::int64_t>;

// The report under the names of FailureReport.
nb::typed<nb::dict, nb::str, nb::any> to_dict(FailureReport report) {
  nb::list failed, waits;
  for (const FailedRank& rank : report.failed) {
    failed.append(nb::make_tuple(rank.rank, rank.at_ns));
  }
  for (const Wait& wait : report.waits) {
    nb::list ranks;
    for (const WaitingRank& r : wait.ranks) {
      ranks.append(nb::make_tuple(r.rank, r.op, r.call_site, r.since_ns));
    }
    nb::dict one;
    one["communicator"] = wait.communicator;
    one["op"] = wait.op;
    one["number"] = wait.message ? nb::object(nb::none()) : nb::object(nb::int_(wait.number));
    one["missing"] = wait.missing;
    one["failed"] = wait.failed;
    one["ranks"] = ranks;
    waits.append(one);
  }
  nb::typed<nb::dict, nb::str, nb::any> out;
  out["failed"] = failed;
  out["waits"] = waits;
  out["iterations"] = owned_array(std::move(report.iterations));
  return out;
}

// The result under the names of ReplayResult; tables are flat.
nb::typed<nb::dict, nb::str, nb::any> to_dict(ReplayResult result) {
  nb::typed<nb::dict, nb::str, nb::any> out;
  out["iterations"] = result.iterations;
  out["iteration_time_ns"] = owned_array(std::move(result.iteration_time_ns));
  out["ranks"] = owned_array(std::move(result.ranks));
  static_assert(sizeof(TimeSplit) == 6 * sizeof(std::int64_t));
  std::vector<std::int64_t> splits(result.splits.size() * 6);
  if (!splits.empty()) std::memcpy(splits.data(), result.splits.data(), splits.size() * 8);
  out["splits"] = owned_array(std::move(splits));
  out["iteration_end_ns"] = owned_array(std::move(result.iteration_end_ns));
  out["peak_allocated_bytes"] = owned_array(std::move(result.peak_allocated_bytes));
  out["events"] = result.events;
  out["device_time_ns"] = result.device_time_ns;
  out["warnings"] = result.warnings;
  out["diverged"] = result.diverged;
  nb::list odd_polls;
  for (const OddPolls& odd : result.odd_polls) {
    odd_polls.append(nb::make_tuple(odd.rank, odd.asked, odd.recorded, odd.op));
  }
  out["odd_polls"] = odd_polls;
  out["failure"] = nb::none();
  if (result.failure) out["failure"] = to_dict(std::move(*result.failure));
  out["late_ns"] = result.late_ns;
  const auto column = [&](const char* name, auto member) {
    using Value = std::remove_cvref_t<decltype(std::declval<Interval>().*member)>;
    std::vector<Value> values;
    values.reserve(result.timeline.size());
    for (const Interval& interval : result.timeline) values.push_back(interval.*member);
    out[name] = owned_array(std::move(values));
  };
  column("timeline_rank", &Interval::rank);
  column("timeline_stream", &Interval::stream);
  column("timeline_op", &Interval::op);
  column("timeline_block_position", &Interval::block_position);
  column("timeline_arrive_ns", &Interval::arrive_ns);
  column("timeline_start_ns", &Interval::start_ns);
  column("timeline_end_ns", &Interval::end_ns);
  return out;
}

Perturbation perturbation_of(const std::vector<Slow>& slow_ranks,
                             const std::vector<SlowPair>& slow_links, std::uint64_t jitter_seed,
                             double jitter_sigma, const std::vector<Failure>& failures) {
  Perturbation p;
  for (const auto& [rank, factor, from_ns, to_ns] : slow_ranks) {
    p.slow_ranks.push_back({rank, factor, from_ns, to_ns});
  }
  for (const auto& [rank, other, factor, from_ns, to_ns] : slow_links) {
    p.slow_links.push_back({rank, other, factor, from_ns, to_ns});
  }
  p.jitter = {jitter_seed, jitter_sigma};
  for (const auto& [rank, at_ns] : failures) p.failures.push_back({rank, at_ns});
  return p;
}

ReplayOptions options_of(std::uint32_t threads, const Perturbation& perturbation,
                         const ClusterProfile* cluster, const DeviceProfile* device,
                         const ClusterProfile* wiring, std::int64_t eager_bytes) {
  ReplayOptions options;
  options.threads = threads;
  options.perturbation = perturbation;
  options.cluster = cluster;
  options.device = device;
  options.wiring = wiring;
  options.eager_bytes = eager_bytes;
  return options;
}

}  // namespace

void init_engine(nb::module_& m) {
  nb::class_<Perturbation>(m, "Perturbation")
      .def(
          "__init__",
          [](Perturbation* self, const std::vector<Slow>& slow_ranks,
             const std::vector<SlowPair>& slow_links, std::uint64_t jitter_seed,
             double jitter_sigma, const std::vector<Failure>& failures) {
            new (self) Perturbation(
                perturbation_of(slow_ranks, slow_links, jitter_seed, jitter_sigma, failures));
          },
          nb::arg("slow_ranks"), nb::arg("slow_links"), nb::arg("jitter_seed"),
          nb::arg("jitter_sigma"), nb::arg("failures"));
  m.attr("every_link") = nb::int_(SlowLink::every);
  m.def(
      "materialised",
      [](const Graph& graph, const std::vector<std::uint32_t>& sandbox,
         const ClusterProfile& cluster) {
        Materialised found;
        {
          const nb::gil_scoped_release no_gil;
          found = materialised(graph, sandbox, cluster);
        }
        return std::make_pair(owned_array(std::move(found.ghosts)), found.messages);
      },
      nb::arg("graph"), nb::arg("sandbox"), nb::arg("cluster"));
  nb::class_<PortMemory>(m, "PortMemory")
      .def_static(
          "create",
          [](std::size_t ranks, bool timed) {
            return PortMemory::create(ranks, std::size_t{1} << 14, timed);
          },
          nb::arg("ranks"), nb::arg("timed"))
      .def_prop_ro("fd", &PortMemory::fd)
      .def("close", &PortMemory::close);
  nb::class_<ExchangeMemory>(m, "ExchangeMemory")
      .def_static(
          "create",
          [](const std::vector<std::uint32_t>& ranks) { return ExchangeMemory::create(ranks); },
          nb::arg("ranks"))
      .def_prop_ro("fd", &ExchangeMemory::fd)
      .def("waits_for", &ExchangeMemory::waits_for, nb::arg("number"))
      .def("close", &ExchangeMemory::close);
  nb::class_<RemoteMachine>(m, "RemoteMachine")
      .def(nb::init<int, const PortMemory&, std::vector<std::uint32_t>>(), nb::arg("fd"),
           nb::arg("ports"), nb::arg("numbers"))
      .def("send_text", &RemoteMachine::send_text, nb::arg("text"),
           nb::call_guard<nb::gil_scoped_release>())
      .def("take_text", &RemoteMachine::take_text)
      .def_prop_ro("lost", &RemoteMachine::lost);
  nb::class_<Relay>(m, "Relay")
      .def(nb::init<int, const PortMemory&>(), nb::arg("fd"), nb::arg("ports"))
      .def(
          "run",
          [](Relay& relay, const nb::typed<nb::callable, void()>& idle) {
            const nb::gil_scoped_release no_gil;
            relay.run([&](std::uint32_t, std::chrono::nanoseconds) {
              const nb::gil_scoped_acquire interpreter;
              idle();
            });
          },
          nb::arg("idle"))
      .def("send_text", &Relay::send_text, nb::arg("text"),
           nb::call_guard<nb::gil_scoped_release>())
      .def("take_text", &Relay::take_text)
      .def_prop_ro("lost", &Relay::lost);
  m.def(
      "emulate",
      [](const Graph& graph, std::uint32_t threads, const Perturbation& perturbation,
         const ClusterProfile* cluster, const DeviceProfile* device, const ClusterProfile* wiring,
         std::int64_t eager_bytes, const PortMemory& memory, std::vector<std::uint32_t> ranks,
         bool follow, const std::vector<RemoteMachine*>& machines,
         const nb::typed<nb::callable, bool(std::uint32_t, std::int64_t)>& idle) {
        const ReplayOptions options =
            options_of(threads, perturbation, cluster, device, wiring, eager_bytes);
        PortRanks outside(memory, std::move(ranks),
                          [&](std::uint32_t rank, std::chrono::nanoseconds silent) {
                            const nb::gil_scoped_acquire interpreter;
                            outside.set_patient(nb::cast<bool>(idle(rank, silent.count())));
                          });
        for (RemoteMachine* machine : machines) {
          for (const std::uint32_t number : machine->numbers()) {
            outside.tell_by(number, [=](std::int64_t value) { machine->answer(number, value); });
          }
        }
        ReplayResult result;
        {
          const nb::gil_scoped_release no_gil;
          result =
              emulate(graph, options, outside, follow ? OnDivergence::follow : OnDivergence::stop);
        }
        auto out = to_dict(std::move(result));
        out["posts"] = outside.messages();
        out["first_post_ns"] = outside.first_post_ns();
        const Lateness errors = outside.release_errors();
        out["release_error_ns"] =
            std::array{errors.quantile(0.5), errors.quantile(0.99), errors.max()};
        out["paced_answers"] = errors.count();
        out["overdue_answers"] = outside.overdue();
        return out;
      },
      nb::arg("graph"), nb::arg("threads"), nb::arg("perturbation"), nb::arg("cluster").none(),
      nb::arg("device").none(), nb::arg("wiring").none(), nb::arg("eager_bytes"), nb::arg("ports"),
      nb::arg("ranks"), nb::arg("follow"), nb::arg("machines"), nb::arg("idle"));
  m.def(
      "play_back",
      [](const Graph& graph, std::uint32_t rank, int fd, std::size_t number) {
        const nb::gil_scoped_release no_gil;
        Port port(PortMemory::open(fd), number);
        play_back(graph, rank, port);
      },
      nb::arg("graph"), nb::arg("rank"), nb::arg("fd"), nb::arg("number"));
  m.def(
      "pace_alone",
      [](std::int64_t interval_ns, std::uint64_t count) {
        const nb::gil_scoped_release no_gil;
        const Lateness errors = pace_alone(PaceClock::steady(), interval_ns, count);
        return std::array{errors.quantile(0.5), errors.quantile(0.99), errors.max()};
      },
      nb::arg("interval_ns"), nb::arg("count"));
  m.def(
      "replay",
      [](const Graph& graph, std::uint32_t threads, const Perturbation& perturbation,
         const ClusterProfile* cluster, const DeviceProfile* device, const ClusterProfile* wiring,
         std::int64_t eager_bytes, std::vector<std::uint32_t> timeline_ranks, bool keep_stuck,
         bool host) {
        ReplayOptions options =
            options_of(threads, perturbation, cluster, device, wiring, eager_bytes);
        options.host = host;
        options.timeline_ranks = std::move(timeline_ranks);
        options.keep_stuck = keep_stuck;
        ReplayResult result;
        {
          const nb::gil_scoped_release no_gil;
          result = replay(graph, options);
        }
        return to_dict(std::move(result));
      },
      nb::arg("graph"), nb::arg("threads"), nb::arg("perturbation"), nb::arg("cluster").none(),
      nb::arg("device").none(), nb::arg("wiring").none(), nb::arg("eager_bytes"),
      nb::arg("timeline_ranks"), nb::arg("keep_stuck") = false, nb::arg("host") = false);
  m.def(
      "memory_curve",
      [](const Graph& graph, std::uint32_t rank) {
        MemoryCurve curve;
        {
          const nb::gil_scoped_release no_gil;
          curve = memory_curve(graph, rank);
        }
        return std::make_pair(owned_array(std::move(curve.live_bytes)), curve.peak_bytes);
      },
      nb::arg("graph"), nb::arg("rank"));
  m.def(
      "iteration_ends_alone",
      [](const Graph& graph, std::uint32_t rank) {
        std::vector<std::int64_t> ends;
        {
          const nb::gil_scoped_release no_gil;
          ends = iteration_ends_alone(graph, rank);
        }
        return owned_array(std::move(ends));
      },
      nb::arg("graph"), nb::arg("rank"));
}

}  // namespace prism::bind
