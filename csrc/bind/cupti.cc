#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "bind/bind.h"
#include "bind/marks.h"
#include "bind/numpy.h"
#include "device/cupti/recording.h"

// Recording on a real GPU. The doors note from C++; what they note may come from Python too.
namespace prism::bind {

using device::cupti::Recording;
using device::cupti::RecordingOptions;

void init_cupti(nb::module_& m) {
  using NoGil = nb::call_guard<nb::gil_scoped_release>;
  m.def(
      "cupti_start",
      [](std::uint32_t rank, std::uint32_t world_size, bool use_cupti, const std::string& library,
         std::size_t buffers, std::size_t buffer_bytes, bool gaps_as_callbacks) {
        if (buffers == 0 || buffer_bytes < 4096) {
          throw CuptiError("CUPTI: found " + std::to_string(buffers) + " buffers of " +
                           std::to_string(buffer_bytes) +
                           " bytes, expected one or more of 4,096 bytes or more");
        }
        RecordingOptions options;
        options.rank = rank;
        options.world_size = world_size;
        options.use_cupti = use_cupti;
        options.library = library;
        options.buffers = buffers;
        options.buffer_bytes = buffer_bytes;
        options.gaps_as_callbacks = gaps_as_callbacks;
        Recording::get().start(options);
      },
      nb::arg("rank"), nb::arg("world_size"), nb::arg("use_cupti") = true, nb::arg("library") = "",
      nb::arg("buffers") = RecordingOptions{}.buffers,
      nb::arg("buffer_bytes") = RecordingOptions{}.buffer_bytes,
      nb::arg("gaps_as_callbacks") = false, NoGil());
  m.def("cupti_active", [] { return Recording::get().active(); });
  m.def("cupti_now", [] { return Recording::get().now(); });
  m.def("cupti_num_iterations", [] { return Recording::get().num_iterations(); });
  m.def(
      "cupti_add_communicator",
      [](std::string_view name, std::uint32_t size, std::uint32_t position) {
        return Recording::get().add_communicator(name, size, position);
      },
      nb::arg("name"), nb::arg("size"), nb::arg("position"), NoGil());
  m.def(
      "cupti_set_members",
      [](std::uint32_t slot, const std::vector<std::uint32_t>& members) {
        Recording::get().set_members(slot, members);
      },
      nb::arg("slot"), nb::arg("members"), NoGil());
  m.def(
      "cupti_stream_key",
      [](std::uintptr_t context, std::uintptr_t stream) {
        const auto key = Recording::get().stream_key(reinterpret_cast<void*>(context),
                                                     reinterpret_cast<void*>(stream));
        return std::tuple(key.context, key.stream);
      },
      nb::arg("context"), nb::arg("stream"));
  m.def(
      "cupti_communicate",
      [](std::uint64_t begin_ns, std::uint32_t context, std::uint32_t stream,
         const ByteArray& parts) {
        const Records<Op> records(parts);
        return Recording::get().communicate(begin_ns, {context, stream}, records.view());
      },
      nb::arg("begin_ns"), nb::arg("context"), nb::arg("stream"), nb::arg("parts"));
  m.def(
      "cupti_reached",
      [](std::uint64_t launch, std::uint64_t begin_ns, std::uint64_t end_ns) {
        Recording::get().reached(launch, begin_ns, end_ns);
      },
      nb::arg("launch"), nb::arg("begin_ns"), nb::arg("end_ns"));
  m.def(
      "cupti_own_calls", [](std::uint64_t begin_ns) { Recording::get().own_calls(begin_ns); },
      nb::arg("begin_ns"));
  // Of the framework's allocator; below 0: taken back.
  m.def(
      "cupti_block",
      [](std::int64_t bytes) {
        if (bytes > 0) Recording::get().block_allocated(bytes);
        if (bytes < 0) Recording::get().block_freed(-bytes);
      },
      nb::arg("bytes"));
  m.def(
      "cupti_mark",
      [](std::string_view kind, std::string_view label) {
        Recording::get().mark(mark_of(kind), label);
      },
      nb::arg("kind"), nb::arg("label") = "", NoGil());
  m.def("cupti_flush", [] { Recording::get().flush(); }, NoGil());
  m.def("cupti_seal", [] { Recording::get().seal(); });
  m.def("cupti_stop", [] { Recording::get().stop(); }, NoGil());
  m.def("cupti_report", [] { return Recording::get().report(); });
  m.def(
      "cupti_finish",
      [](std::array<std::int64_t, 4> peaks, const std::vector<std::string>& call_sites,
         std::string_view metadata) {
        return Recording::get().finish({peaks[0], peaks[1], peaks[2], peaks[3]}, call_sites,
                                       metadata);
      },
      nb::arg("peaks"), nb::arg("call_sites"), nb::arg("metadata") = "{}", NoGil());
}

}  // namespace prism::bind
