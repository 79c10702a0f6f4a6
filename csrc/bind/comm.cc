#include "bind/bind.h"

namespace prism::bind {

void init_comm(nb::module_&) {}

}  // namespace prism::bind
