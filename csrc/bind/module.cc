#include "bind/bind.h"

NB_MODULE(_core, m) {
  // Threads that outlive the program's end (a sum that was given up, a quorum that is asked for)
  // hold objects then, and so does an error that nobody caught: not the user's concern.
  nb::set_leak_warnings(false);
  m.doc() = "prismcore's C++ core. Users import prismcore; names here may change.";
  prism::bind::init_error(m);
  prism::bind::init_graph(m);
  prism::bind::init_recorder(m);
  prism::bind::init_comm(m);
  prism::bind::init_cost(m);
  prism::bind::init_engine(m);
  prism::bind::init_kineto(m);
  prism::bind::init_vgpu(m);
  prism::bind::init_cupti(m);
  prism::bind::init_spare(m);
  prism::bind::init_spare_life(m);
}
