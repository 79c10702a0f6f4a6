#include "bind/bind.h"

namespace prism::bind {

void init_recorder(nb::module_&) {}

}  // namespace prism::bind
