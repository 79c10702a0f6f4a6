// Views between numpy arrays and the spans of the core. Structured arrays travel as their bytes;
// prismcore.graph.op holds the dtypes.
#pragma once

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "bind/bind.h"

namespace prism::bind {

using ByteArray = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using IdArray = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

inline std::span<const std::uint32_t> ids_of(const IdArray& array) {
  return {array.data(), array.size()};
}

// Values of a fixed layout in a byte array; copied only where the array is not aligned for them.
template <class T>
class Records {
 public:
  explicit Records(const ByteArray& array) {
    if (array.size() % sizeof(T) != 0) {
      throw nb::value_error("the array's bytes are no whole number of records");
    }
    const std::size_t count = array.size() / sizeof(T);
    if (reinterpret_cast<std::uintptr_t>(array.data()) % alignof(T) == 0) {
      view_ = {reinterpret_cast<const T*>(array.data()), count};
    } else {
      copy_.resize(count);
      std::memcpy(copy_.data(), array.data(), array.size());
      view_ = copy_;
    }
  }
  std::span<const T> view() const noexcept { return view_; }

 private:
  std::vector<T> copy_;
  std::span<const T> view_;
};

// A numpy array that keeps `owner` (a Python object or a vector moved in) alive.
template <class T>
nb::ndarray<nb::numpy, const T, nb::ndim<1>> borrowed_array(std::span<const T> values,
                                                            nb::handle owner) {
  return {values.data(), {values.size()}, owner};
}

template <class T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> owned_array(std::vector<T> values) {
  auto held = std::make_unique<std::vector<T>>(std::move(values));
  T* data = held->data();
  const std::size_t size = held->size();
  nb::capsule owner(held.release(),
                    [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return {data, {size}, owner};
}

// Names come from outside: bytes that are no UTF-8 are shown, not refused.
inline nb::str text(std::string_view bytes) {
  return nb::steal<nb::str>(
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace"));
}

}  // namespace prism::bind
