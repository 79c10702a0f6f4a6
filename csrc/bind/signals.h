// Ctrl-C during long work of the core.
#pragma once

#include "bind/bind.h"

namespace prism::bind {

// For work without the GIL: Python's handlers run, in its main thread; what they raise is thrown.
inline void check_signals() {
  const nb::gil_scoped_acquire locked;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

}  // namespace prism::bind
