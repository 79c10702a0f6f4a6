#include "bind/bind.h"

NB_MODULE(_core, m) {
  m.doc() = "prismcore's C++ core. Users import prismcore; names here may change.";
  prism::bind::init_error(m);
  prism::bind::init_graph(m);
  prism::bind::init_recorder(m);
  prism::bind::init_comm(m);
  prism::bind::init_cost(m);
  prism::bind::init_engine(m);
  prism::bind::init_vgpu(m);
  prism::bind::init_spare(m);
  prism::bind::init_spare_life(m);
}
