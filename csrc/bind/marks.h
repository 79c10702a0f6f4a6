// Kinds of marks by name.
#pragma once

#include <string_view>

#include "graph/op.h"

namespace prism::bind {

// Throws GraphError where there is none of this name.
MarkKind mark_of(std::string_view kind);

}  // namespace prism::bind
