// Maps each C++ error to the class of the same name in prismcore.errors.
#include "base/error.h"

#include <exception>

#include "bind/bind.h"

namespace prism::bind {
namespace {

void raise(const char* name, const Error& error) {
  nb::object type = nb::module_::import_("prismcore.errors").attr(name);
  PyErr_SetString(type.ptr(), error.what());
}

// One that names a rank and its op.
template <class PlacedError>
void raise_placed(const char* name, const PlacedError& e) {
  nb::object error = nb::module_::import_("prismcore.errors").attr(name)(e.what());
  error.attr("rank") = e.rank;
  error.attr("op") = e.op;
  PyErr_SetObject(error.type().ptr(), error.ptr());
}

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const GraphFormatError& e) {
    raise("GraphFormatError", e);
  } catch (const GraphError& e) {
    raise("GraphError", e);
  } catch (const ProfileError& e) {
    raise("ProfileError", e);
  } catch (const DeadlockError& e) {
    raise("DeadlockError", e);
  } catch (const MismatchError& e) {
    raise_placed("MismatchError", e);
  } catch (const DivergenceError& e) {
    raise_placed("DivergenceError", e);
  } catch (const SpareError& e) {
    raise("SpareError", e);
  } catch (const TraceError& e) {
    raise("TraceError", e);
  } catch (const Error& e) {
    raise("PrismError", e);
  }
}

}  // namespace

void init_error(nb::module_&) { nb::register_exception_translator(translate); }

}  // namespace prism::bind
