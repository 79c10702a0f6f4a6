#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "bind/bind.h"
#include "bind/numpy.h"
#include "bind/signals.h"
#include "kineto/reader.h"

namespace prism::bind {
namespace {

TextSet set_of(const std::vector<std::string>& texts) { return {texts.begin(), texts.end()}; }

template <class T>
auto column(std::vector<T> KinetoEvents::* member) {
  return [member](nb::handle self) {
    return borrowed_array<T>(nb::cast<KinetoEvents&>(self).*member, self);
  };
}

}  // namespace

void init_kineto(nb::module_& m) {
  nb::class_<KinetoEvents>(m, "KinetoEvents")
      .def_prop_ro("name", column(&KinetoEvents::name))
      .def_prop_ro("category", column(&KinetoEvents::category))
      .def_prop_ro("thread", column(&KinetoEvents::thread))
      .def_prop_ro("start_ns", column(&KinetoEvents::start_ns))
      .def_prop_ro("duration_ns", column(&KinetoEvents::duration_ns))
      .def_prop_ro("correlation", column(&KinetoEvents::correlation))
      .def_prop_ro("device", column(&KinetoEvents::device))
      .def_prop_ro("stream", column(&KinetoEvents::stream))
      .def_prop_ro("bytes", column(&KinetoEvents::bytes))
      .def_prop_ro("launched", column(&KinetoEvents::launched))
      .def_prop_ro("launches",
                   [](nb::handle self) {
                     const auto& rows = nb::cast<KinetoEvents&>(self).launches;
                     return nb::ndarray<nb::numpy, const std::uint32_t, nb::ndim<2>>(
                         rows.data(), {rows.size(), LaunchShape{}.size()}, self);
                   })
      .def_prop_ro("detailed", column(&KinetoEvents::detailed))
      .def_prop_ro("detail_key", column(&KinetoEvents::detail_key))
      .def_prop_ro("detail_value", column(&KinetoEvents::detail_value))
      .def("strings",
           [](const KinetoEvents& events) {
             nb::typed<nb::list, nb::str> texts;
             for (std::size_t i = 0; i < events.strings.size(); ++i) {
               texts.append(text(events.strings[static_cast<std::uint32_t>(i)]));
             }
             return texts;
           })
      .def("header",
           [](const KinetoEvents& events) {
             nb::typed<nb::list, nb::typed<nb::tuple, nb::str, nb::str>> pairs;
             for (const auto& [key, value] : events.header) {
               pairs.append(nb::make_tuple(text(key), text(value)));
             }
             return pairs;
           })
      .def_ro("text_bytes", &KinetoEvents::text_bytes)
      .def_ro("others", &KinetoEvents::others)
      .def_ro("damaged", &KinetoEvents::damaged);
  m.def(
      "read_kineto",
      [](const nb::bytes& path, const std::vector<std::string>& left_out,
         const std::vector<std::string>& details, const std::vector<std::string>& named,
         const std::vector<std::string>& named_keys) {
        const KinetoOptions options{.left_out = set_of(left_out),
                                    .details = set_of(details),
                                    .named = set_of(named),
                                    .named_keys = set_of(named_keys)};
        const std::string name(path.c_str(), path.size());
        const nb::gil_scoped_release unlocked;
        return read_kineto(name, options, check_signals);
      },
      nb::arg("path"), nb::kw_only(), nb::arg("left_out"), nb::arg("details"), nb::arg("named"),
      nb::arg("named_keys"));
}

}  // namespace prism::bind
