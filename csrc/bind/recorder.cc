#include "graph/recorder.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/string_view.h>

#include "bind/bind.h"
#include "bind/numpy.h"

// For tests and benchmarks: the doors record from C++.
namespace prism::bind {

void init_recorder(nb::module_& m) {
  nb::class_<Recorder>(m, "Recorder")
      .def(nb::init<std::uint32_t, std::uint32_t>(), nb::arg("rank"), nb::arg("world_size"))
      .def(
          "append_many",
          [](Recorder& recorder, const ByteArray& ops) {
            const Records<Op> records(ops);
            for (const Op& op : records.view()) recorder.append(op);
          },
          nb::arg("ops"))
      .def("string", &Recorder::string, nb::arg("text"))
      .def(
          "kernel",
          [](Recorder& recorder, std::string_view name, std::array<std::uint32_t, 3> grid,
             std::array<std::uint32_t, 3> block) {
            KernelShape shape;
            shape.grid = grid;
            shape.block = block;
            return recorder.kernel(name, shape);
          },
          nb::arg("name"), nb::arg("grid"), nb::arg("block"))
      .def("add_communicator", &Recorder::add_communicator, nb::arg("name"), nb::arg("size"),
           nb::arg("position"))
      .def(
          "set_members",
          [](Recorder& recorder, std::uint32_t slot, const IdArray& members) {
            recorder.set_members(slot, ids_of(members));
          },
          nb::arg("slot"), nb::arg("members"))
      .def(
          "set_call_sites",
          [](Recorder& recorder, const IdArray& strings) {
            recorder.set_call_sites(ids_of(strings));
          },
          nb::arg("strings"))
      .def(
          "set_peaks",
          [](Recorder& recorder, std::array<std::int64_t, 4> p) {
            recorder.set_peaks({p[0], p[1], p[2], p[3]});
          },
          nb::arg("peaks"))
      .def_prop_ro("num_ops", &Recorder::num_ops)
      .def_prop_ro("num_communication_ops", &Recorder::num_communication_ops)
      .def_prop_ro("num_iterations", &Recorder::num_iterations)
      .def(
          "finish",
          [](Recorder& recorder, std::string_view metadata) { return recorder.finish(metadata); },
          nb::arg("metadata") = "{}");
}

}  // namespace prism::bind
