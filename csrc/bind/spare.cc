#include <nanobind/stl/pair.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "bind/bind.h"
#include "bind/numpy.h"
#include "bind/signals.h"
#include "spare/domains.h"
#include "spare/golomb.h"
#include "spare/placement.h"
#include "spare/reorderer.h"

namespace prism::bind {
namespace {

using spare::Part;
using spare::Placement;
using spare::Plan;
using spare::Reorderer;

using Integers = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<nb::numpy, std::int32_t, nb::ndim<2>>;

std::span<const std::int32_t> view(const Integers& array) { return {array.data(), array.size()}; }

Table table(std::vector<std::int32_t> values, std::size_t columns) {
  auto held = std::make_unique<std::vector<std::int32_t>>(std::move(values));
  std::int32_t* data = held->data();
  const std::size_t rows = held->size() / columns;
  nb::capsule owner(held.release(),
                    [](void* p) noexcept { delete static_cast<std::vector<std::int32_t>*>(p); });
  return Table(data, {rows, columns}, owner);
}

// One caller at a time; the GIL is not held while a caller waits or solves.
struct SharedReorderer {
  SharedReorderer(const Placement& placement, std::int32_t micro_batches)
      : solver(placement, micro_batches) {}

  Reorderer solver;
  mutable std::mutex mutex;
  std::uint64_t version = 0;  // of the layout
};

// A plan by value, and the version of the layout that it led to.
struct PlanCopy {
  Plan plan;
  std::uint64_t version = 0;
};

PlanCopy change(SharedReorderer& self, const Integers& groups,
                const Plan& (Reorderer::*call)(std::span<const std::int32_t>)) {
  const std::span<const std::int32_t> which = view(groups);
  const nb::gil_scoped_release released;
  const std::lock_guard lock(self.mutex);
  const Plan& plan = (self.solver.*call)(which);
  return {plan, ++self.version};
}

template <class Ask>
auto ask(const SharedReorderer& self, const Ask& question) {
  const nb::gil_scoped_release released;
  const std::lock_guard lock(self.mutex);
  return question(self.solver);
}

using PartPairs = std::vector<std::pair<std::int32_t, std::int32_t>>;

PartPairs pairs(const std::vector<Part>& parts) {
  PartPairs out;
  out.reserve(parts.size());
  for (const Part& part : parts) out.emplace_back(part.type, part.part);
  return out;
}

Table everyone(const SharedReorderer& self, std::int32_t (Reorderer::*of)(Part) const) {
  std::vector<std::int32_t> values = ask(self, [of](const Reorderer& solver) {
    std::vector<std::int32_t> found;
    const std::int32_t types = solver.placement().groups();
    found.reserve(static_cast<std::size_t>(types) *
                  static_cast<std::size_t>(solver.micro_batches()));
    for (std::int32_t type = 0; type < types; ++type) {
      for (std::int32_t part = 0; part < solver.micro_batches(); ++part) {
        found.push_back((solver.*of)({type, part}));
      }
    }
    return found;
  });
  return table(std::move(values), static_cast<std::size_t>(self.solver.micro_batches()));
}

void init_placement(nb::module_& m) {
  const nb::call_guard<nb::gil_scoped_release> no_gil;
  nb::class_<Placement>(m, "SparePlacement")
      .def_static(
          "golomb",
          [](std::int32_t groups, std::int32_t redundancy) {
            return Placement::golomb(groups, redundancy, check_signals);
          },
          no_gil)
      .def_static(
          "spread",
          [](std::int32_t groups, std::int32_t redundancy) {
            return Placement::spread(groups, redundancy, check_signals);
          },
          no_gil)
      .def_static(
          "cyclic",
          [](std::int32_t groups, std::int32_t redundancy) {
            return Placement::cyclic(groups, redundancy, check_signals);
          },
          no_gil)
      .def_static(
          "replication",
          [](std::int32_t groups, std::int32_t redundancy) {
            return Placement::replication(groups, redundancy, check_signals);
          },
          no_gil)
      .def_static(
          "random",
          [](std::int32_t groups, std::int32_t redundancy, std::uint64_t seed) {
            return Placement::random(groups, redundancy, seed, check_signals);
          },
          no_gil)
      .def_static("domains",
                  [](std::int32_t redundancy, const Integers& domain_of_group) {
                    const nb::gil_scoped_release released;
                    return Placement::domains(redundancy, view(domain_of_group), check_signals);
                  })
      .def_static("custom",
                  [](std::int32_t groups, std::int32_t redundancy, const Integers& stacks) {
                    const nb::gil_scoped_release released;
                    return Placement::custom(groups, redundancy, view(stacks), check_signals);
                  })
      .def_prop_ro("groups", &Placement::groups)
      .def_prop_ro("redundancy", &Placement::redundancy)
      .def_prop_ro("kind", [](const Placement& self) { return name(self.kind()); })
      .def("stacks",
           [](const Placement& self) {
             return table({self.stacks().begin(), self.stacks().end()},
                          static_cast<std::size_t>(self.redundancy()));
           })
      .def("hosts",
           [](const Placement& self) {
             std::vector<std::int32_t> all;
             all.reserve(self.stacks().size());
             for (std::int32_t type = 0; type < self.groups(); ++type) {
               const auto hosts = self.hosts(type);
               all.insert(all.end(), hosts.begin(), hosts.end());
             }
             return table(std::move(all), static_cast<std::size_t>(self.redundancy()));
           })
      .def(
          "max_shared", [](const Placement& self) { return self.max_shared(check_signals); },
          no_gil)
      .def("max_hosts_in_domain", [](const Placement& self, const Integers& domain_of_group) {
        const nb::gil_scoped_release released;
        return self.max_hosts_in_domain(view(domain_of_group), check_signals);
      });
  m.def("golomb_ruler", &spare::golomb_ruler);
  m.def("groups_needed", &spare::groups_needed);
  m.def(
      "largest_redundancy",
      [](std::int32_t groups) { return spare::largest_redundancy(groups, check_signals); }, no_gil);
  m.def("fewest_hosts_in_domain", [](std::int32_t redundancy, const Integers& domain_of_group) {
    return spare::fewest_hosts_in_domain(redundancy, view(domain_of_group));
  });
}

void init_plan(nb::module_& m) {
  nb::class_<PlanCopy>(m, "SparePlan")
      .def_prop_ro("outcome", [](const PlanCopy& self) { return name(self.plan.outcome); })
      .def_prop_ro("depth", [](const PlanCopy& self) { return self.plan.depth; })
      .def_prop_ro("survivors", [](const PlanCopy& self) { return self.plan.survivors; })
      .def_prop_ro("new_work", [](const PlanCopy& self) { return self.plan.new_work; })
      .def_prop_ro("patch_depth", [](const PlanCopy& self) { return self.plan.patch_depth; })
      .def_prop_ro("lost_types", [](const PlanCopy& self) { return self.plan.lost_types; })
      .def_prop_ro("digest", [](const PlanCopy& self) { return self.plan.digest; })
      .def_prop_ro("version", [](const PlanCopy& self) { return self.version; })
      .def("patches",  // rows of group, type, part
           [](const PlanCopy& self) {
             std::vector<std::int32_t> rows;
             for (const auto& [group, part] : self.plan.patches) {
               rows.insert(rows.end(), {group, part.type, part.part});
             }
             return table(std::move(rows), 3);
           })
      .def("moves", [](const PlanCopy& self) {  // rows of type, part, from, to
        std::vector<std::int32_t> rows;
        for (const auto& [part, from, to] : self.plan.moves) {
          rows.insert(rows.end(), {part.type, part.part, from, to});
        }
        return table(std::move(rows), 4);
      });
}

}  // namespace

void init_spare(nb::module_& m) {
  init_placement(m);
  init_plan(m);
  nb::class_<SharedReorderer>(m, "SpareReorderer")
      .def(nb::init<const Placement&, std::int32_t>(), nb::call_guard<nb::gil_scoped_release>())
      .def("fail", [](SharedReorderer& self,
                      const Integers& groups) { return change(self, groups, &Reorderer::fail); })
      .def("rejoin",
           [](SharedReorderer& self, const Integers& groups) {
             return change(self, groups, &Reorderer::rejoin);
           })
      .def("commit",
           [](SharedReorderer& self) {
             const nb::gil_scoped_release released;
             const std::lock_guard lock(self.mutex);
             self.solver.commit();
           })
      .def("restart",
           [](SharedReorderer& self) {
             const nb::gil_scoped_release released;
             const std::lock_guard lock(self.mutex);
             self.solver.restart();
             ++self.version;
           })
      .def_prop_ro("micro_batches",
                   [](const SharedReorderer& self) { return self.solver.micro_batches(); })
      .def_prop_ro("depth",
                   [](const SharedReorderer& self) {
                     return ask(self, [](const Reorderer& solver) { return solver.depth(); });
                   })
      .def_prop_ro("survivors",
                   [](const SharedReorderer& self) {
                     return ask(self, [](const Reorderer& solver) { return solver.survivors(); });
                   })
      .def_prop_ro("wiped_out",
                   [](const SharedReorderer& self) {
                     return ask(self, [](const Reorderer& solver) { return solver.wiped_out(); });
                   })
      .def_prop_ro("digest",
                   [](const SharedReorderer& self) {
                     return ask(self, [](const Reorderer& solver) { return solver.digest(); });
                   })
      .def("alive",
           [](const SharedReorderer& self, std::int32_t group) {
             return ask(self, [=](const Reorderer& solver) { return solver.alive(group); });
           })
      .def("owner",
           [](const SharedReorderer& self, std::int32_t type, std::int32_t part) {
             return ask(self, [=](const Reorderer& solver) { return solver.owner({type, part}); });
           })
      .def("holder",
           [](const SharedReorderer& self, std::int32_t type, std::int32_t part) {
             return ask(self, [=](const Reorderer& solver) { return solver.holder({type, part}); });
           })
      .def("owners", [](const SharedReorderer& self) { return everyone(self, &Reorderer::owner); })
      .def("holders",
           [](const SharedReorderer& self) { return everyone(self, &Reorderer::holder); })
      // `version`: of the layout that is asked for, or 0 for whichever there is.
      .def("work", [](const SharedReorderer& self, std::int32_t group, std::uint64_t version) {
        const nb::gil_scoped_release released;
        const std::lock_guard lock(self.mutex);
        if (version != 0 && version != self.version) {
          throw SpareError(
              "plan: its layout is gone, the reorderer has failed, re-joined or restarted groups "
              "since; ask the newest plan or the reorderer");
        }
        return pairs(self.solver.work(group));
      });
}

}  // namespace prism::bind
