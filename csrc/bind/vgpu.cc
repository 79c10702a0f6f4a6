#include <dlfcn.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bind/bind.h"
#include "bind/marks.h"
#include "comm/host.h"
#include "engine/exchange.h"
#include "graph/graph.h"
#include "vgpu/device/locks.h"
#include "vgpu/device/session.h"

namespace prism::bind {

MarkKind mark_of(std::string_view kind) {
  constexpr std::string_view kinds[] = {"iteration", "micro_batch", "phase"};
  for (std::uint8_t i = 0; i < 3; ++i) {
    if (kinds[i] == kind) return static_cast<MarkKind>(i);
  }
  throw GraphError("mark: found '" + std::string(kind) +
                   "', expected iteration, micro_batch or phase");
}

namespace {

using vgpu::OpenCommunicator;
using vgpu::Session;

using CommunicatorTuple =
    std::tuple<std::uint32_t, std::string, std::uint32_t, std::uint32_t, nb::bytes>;

CommunicatorTuple as_tuple(const OpenCommunicator& open) {
  return {open.slot, open.name, open.size, open.position,
          nb::bytes(open.unique_id.data(), open.unique_id.size())};
}

void start(std::uint32_t rank, std::uint32_t world_size, std::uint32_t device_count,
           const DeviceProfile& device, const ClusterProfile& cluster, bool measure_host) {
  vgpu::SessionOptions options;
  options.rank = rank;
  options.world_size = world_size;
  options.device_count = device_count;
  options.device = device;
  options.cluster = cluster;
  options.measure_host = measure_host;
  Session::get().start(options);
}

// The callable is asked from whichever thread communicates first: without the interpreter's lock,
// and never again after the process has begun to end.
void set_member_source(nb::object source) {
  if (source.is_none()) {
    Session::get().set_member_source({});
    return;
  }
  // Kept for the life of the process: the last user may be a thread that outlives the interpreter.
  nb::handle kept = source.release();
  Session::get().set_member_source([kept](const OpenCommunicator& open) {
    const nb::gil_scoped_acquire interpreter;
    try {
      return nb::cast<std::vector<std::uint32_t>>(kept(as_tuple(open)));
    } catch (nb::python_error& error) {
      // It is asked below C code, through which no exception may pass: the members stay unknown.
      error.discard_as_unraisable("members of a communicator");
    } catch (const nb::cast_error&) {
    }
    return std::vector<std::uint32_t>();
  });
}

// The exchange of an emulation in which `rank` runs.
Exchange& running(std::uint32_t rank) {
  Exchange* exchange = Session::get().exchange();
  if (exchange == nullptr || !exchange->number_of(rank)) {
    throw GraphError("rank " + std::to_string(rank) + " does not run beside this one");
  }
  return *exchange;
}

// waits: the program cannot go on without.
Exchange::Payload take(Exchange& exchange, std::size_t from, const MessageKey& key, bool waits) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(waits ? 100 : 1);
  for (;;) {
    const std::uint32_t seen = exchange.news();
    Exchange::Payload payload = exchange.take(from, key);
    const auto left = until - std::chrono::steady_clock::now();
    if (payload != nullptr || left.count() <= 0) {
      exchange.note_wait(waits && payload == nullptr ? std::optional(from) : std::nullopt);
      return payload;
    }
    if (!exchange.progress()) exchange.sleep(seen, left);
  }
}

// PyGILState_Check is not in the stable interface, but in every interpreter.
void share_interpreter() {
  static const auto holds = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));
  if (holds == nullptr) throw Error("the interpreter has no PyGILState_Check, which rules need");
  vgpu::share_interpreter(
      {.let_go = [] { return holds() != 0 ? static_cast<void*>(PyEval_SaveThread()) : nullptr; },
       .take_again =
           [](void* state) { PyEval_RestoreThread(static_cast<PyThreadState*>(state)); }});
}

// Beside the core, in the order they must be loaded: what a later one looks up stands in an
// earlier one.
std::vector<std::string> library_paths() {
  constexpr const char* names[] = {
      "libprismcore.so", "libprism_allocator.so", "libcuda.so.1",    "libnvidia-ml.so.1",
      "libcudart.so.13", "libcublasLt.so.13",     "libcublas.so.13", "libprism_nccl.so"};
  Dl_info core;
  std::string folder;
  if (dladdr(reinterpret_cast<void*>(&Session::get), &core) != 0) folder = core.dli_fname;
  folder.resize(folder.rfind('/') + 1);
  std::vector<std::string> paths;
  for (const char* name : names) paths.push_back(folder + name);
  return paths;
}

}  // namespace

void init_vgpu(nb::module_& m) {
  m.def(
      "vgpu_describe",
      [](std::uint32_t device_count, const DeviceProfile& device) {
        Session::get().describe(device_count, device);
      },
      nb::arg("device_count"), nb::arg("device_profile"));
  m.def("vgpu_start", &start, nb::arg("rank"), nb::arg("world_size"), nb::arg("device_count"),
        nb::arg("device_profile"), nb::arg("cluster_profile"), nb::arg("measure_host") = false);
  m.def(
      "vgpu_attach",
      [](int fd, std::size_t number) { Session::get().attach(PortMemory::open(fd), number); },
      nb::arg("fd"), nb::arg("number"));
  m.def(
      "vgpu_attach_exchange",
      [](int fd, std::size_t number) {
        Session::get().attach_exchange(ExchangeMemory::open(fd), number);
      },
      nb::arg("fd"), nb::arg("number"));
  // Bytes between the hosts of ranks that run. A key is used once between two ranks.
  m.def(
      "vgpu_runs",
      [](std::uint32_t rank) {
        const Exchange* exchange = Session::get().exchange();
        return exchange != nullptr && exchange->number_of(rank).has_value();
      },
      nb::arg("rank"));
  m.def(
      "vgpu_leave",
      [](std::uint32_t rank, std::uint64_t channel, std::uint64_t number, const nb::bytes& data) {
        const auto* begin = static_cast<const std::byte*>(data.data());
        auto payload = std::make_shared<std::vector<std::byte>>(begin, begin + data.size());
        Exchange& exchange = running(rank);
        exchange.leave(*exchange.number_of(rank), {channel, number}, std::move(payload));
      },
      nb::arg("rank"), nb::arg("channel"), nb::arg("number"), nb::arg("data"));
  // Waits no longer than a tenth of a second, so that signals are looked at, or a thousandth where
  // the program only asks. None: not there yet.
  m.def(
      "vgpu_take",
      [](std::uint32_t rank, std::uint64_t channel, std::uint64_t number,
         bool waits) -> std::optional<nb::bytes> {
        Exchange& exchange = running(rank);
        Exchange::Payload payload;
        {
          const nb::gil_scoped_release no_gil;
          payload = take(exchange, *exchange.number_of(rank), {channel, number}, waits);
        }
        if (payload == nullptr) return std::nullopt;
        return nb::bytes(payload->data(), payload->size());
      },
      nb::arg("rank"), nb::arg("channel"), nb::arg("number"), nb::arg("waits") = true);
  m.def(
      "vgpu_mark",
      [](std::string_view kind, std::string_view label) {
        Session::get().mark(mark_of(kind), label);
      },
      nb::arg("kind"), nb::arg("label") = "", nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "vgpu_num_iterations", [] { return Session::get().num_iterations(); },
      nb::call_guard<nb::gil_scoped_release>());
  m.def("vgpu_communicators", [] {
    std::vector<CommunicatorTuple> out;
    for (const OpenCommunicator& open : Session::get().communicators()) {
      out.push_back(as_tuple(open));
    }
    return out;
  });
  m.attr("HOST_GROUP_MARK") = nb::str(host_group_mark.data(), host_group_mark.size());
  // A group that communicates from host memory; named with the mark of such (comm/host.h).
  m.def(
      "vgpu_add_host_group",
      [](std::string_view name, std::uint32_t size, std::uint32_t position) {
        OpenCommunicator open;
        open.name = std::string(host_group_mark) + std::string(name);
        open.size = size;
        open.position = position;
        return Session::get().add_communicator(std::move(open));
      },
      nb::arg("name"), nb::arg("size"), nb::arg("position"));
  // One op of such a group, which the host waits for, on a stream that holds nothing else. Returns
  // the number of the launch among all of the rank.
  m.def(
      "vgpu_communicate_from_host",
      [](std::uintptr_t stream, std::uint32_t slot, std::uint8_t kind, std::uint8_t dtype,
         std::uint8_t detail, std::uint32_t peer, std::int64_t bytes, std::uint32_t tag) {
        Op op;
        op.kind = static_cast<OpKind>(kind);
        op.dtype = static_cast<DataType>(dtype);
        op.detail = detail;
        op.flags = Op::blocking;
        op.ref = slot;
        op.peer = peer;
        op.bytes = bytes;
        op.tag = tag;
        return Session::get().communicate(reinterpret_cast<void*>(stream), {&op, 1});
      },
      nb::arg("stream"), nb::arg("slot"), nb::arg("kind"), nb::arg("dtype"), nb::arg("detail"),
      nb::arg("peer"), nb::arg("bytes"), nb::arg("tag") = 0,
      nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "vgpu_set_members",
      [](std::uint32_t slot, const std::vector<std::uint32_t>& members) {
        const auto open = Session::get().communicators();
        if (slot >= open.size()) {
          throw GraphError("vgpu_set_members: found slot " + std::to_string(slot) +
                           ", expected one of " + std::to_string(open.size()));
        }
        if (members.size() != open[slot].size) {
          throw GraphError("vgpu_set_members: communicator " + open[slot].name + " has " +
                           std::to_string(open[slot].size) + " ranks, found " +
                           std::to_string(members.size()));
        }
        Session::get().set_members(slot, members);
      },
      nb::arg("slot"), nb::arg("members"));
  m.def("vgpu_set_member_source", &set_member_source, nb::arg("source").none());
  m.def(
      "vgpu_set_call_sites",
      [](const std::vector<std::string>& sites) { Session::get().set_call_sites(sites); },
      nb::arg("sites"), nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "vgpu_supply",
      [](std::uintptr_t address, const nb::bytes& bytes, std::uintptr_t stream) {
        void* to = reinterpret_cast<void*>(address);
        if (!Session::get().is_device(to)) {
          throw GraphError("vgpu_supply: the address is not device memory");
        }
        Session::get().supply(reinterpret_cast<void*>(stream), to, {bytes.c_str(), bytes.size()});
      },
      nb::arg("address"), nb::arg("data"), nb::arg("stream"));
  m.def(
      "vgpu_answer_reads",
      [](const std::vector<nb::bytes>& answers) {
        std::vector<std::string> kept;
        for (const nb::bytes& answer : answers) kept.emplace_back(answer.c_str(), answer.size());
        Session::get().answer_reads(std::move(kept));
      },
      nb::arg("answers"));
  // Moves may need the interpreter from here on: whoever waits in a call of the device lets it go.
  m.def("vgpu_share_interpreter", &share_interpreter);
  m.def("vgpu_detach", [] { Session::get().detach(); });
  m.def("vgpu_stop", [] { Session::get().stop(); }, nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "vgpu_report", [] { return Session::get().report(); },
      nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "vgpu_finish",
      [](std::int64_t requested, std::int64_t allocated, std::int64_t reserved,
         std::string_view metadata) {
        MemoryPeaks peaks;
        peaks.requested_bytes = requested;
        peaks.allocated_bytes = allocated;
        peaks.reserved_bytes = reserved;
        return Session::get().finish(peaks, metadata);
      },
      nb::arg("requested"), nb::arg("allocated"), nb::arg("reserved"), nb::arg("metadata") = "{}",
      nb::call_guard<nb::gil_scoped_release>());
  m.def("vgpu_library_paths", &library_paths);
}

}  // namespace prism::bind
