// Maps each C++ error to the class of the same name in prismcore.errors.
#include "base/error.h"

#include <exception>
#include <string_view>

#include "bind/bind.h"
#include "device/driver_error.h"

namespace prism::bind {
namespace {

// Messages name files, which need not be UTF-8: Python spells their bytes as in its own paths.
nb::object text_of(const Error& error) {
  const std::string_view text = error.what();
  const auto size = static_cast<Py_ssize_t>(text.size());
  PyObject* decoded = PyUnicode_DecodeUTF8(text.data(), size, "surrogateescape");
  if (decoded == nullptr) nb::raise_python_error();
  return nb::steal(decoded);
}

void raise(const char* name, const Error& error) {
  nb::object type = nb::module_::import_("prismcore.errors").attr(name);
  PyErr_SetObject(type.ptr(), text_of(error).ptr());
}

// One that names a rank and its op.
template <class PlacedError>
void raise_placed(const char* name, const PlacedError& e) {
  nb::object error = nb::module_::import_("prismcore.errors").attr(name)(text_of(e));
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
  } catch (const NcclError& e) {
    raise("NcclError", e);
  } catch (const CuptiError& e) {
    raise("CuptiError", e);
  } catch (const DriverError& e) {
    raise_placed("DriverError", e);
  } catch (const Error& e) {
    raise("PrismError", e);
  }
}

}  // namespace

void init_error(nb::module_&) { nb::register_exception_translator(translate); }

}  // namespace prism::bind
