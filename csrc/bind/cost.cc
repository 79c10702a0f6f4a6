#include "bind/bind.h"

namespace prism::bind {

void init_cost(nb::module_&) {}

}  // namespace prism::bind
