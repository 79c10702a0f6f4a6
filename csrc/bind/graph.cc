#include "bind/bind.h"

namespace prism::bind {

void init_graph(nb::module_&) {}

}  // namespace prism::bind
