// One init function a folder of the core; each lives in the file of its name and holds nothing
// but conversion.
#pragma once

#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace prism::bind {

void init_error(nb::module_& m);
void init_graph(nb::module_& m);
void init_recorder(nb::module_& m);
void init_comm(nb::module_& m);
void init_cost(nb::module_& m);
void init_engine(nb::module_& m);
void init_kineto(nb::module_& m);
void init_vgpu(nb::module_& m);
void init_cupti(nb::module_& m);
void init_spare(nb::module_& m);
void init_spare_life(nb::module_& m);

}  // namespace prism::bind
