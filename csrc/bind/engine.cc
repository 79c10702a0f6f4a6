#include "bind/bind.h"

namespace prism::bind {

void init_engine(nb::module_&) {}

}  // namespace prism::bind
