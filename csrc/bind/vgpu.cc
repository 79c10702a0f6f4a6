#include "bind/bind.h"

namespace prism::bind {

void init_vgpu(nb::module_&) {}

}  // namespace prism::bind
