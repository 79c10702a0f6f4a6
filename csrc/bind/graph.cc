#include "graph/graph.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <mutex>
#include <tuple>

#include "bind/bind.h"
#include "bind/numpy.h"
#include "graph/builder.h"
#include "graph/digest.h"
#include "graph/statistics.h"

namespace prism::bind {
namespace {

// Calls that release the GIL must not meet in one builder.
struct SharedBuilder {
  explicit SharedBuilder(std::uint32_t world_size) : builder(world_size) {}
  GraphBuilder builder;
  std::mutex mutex;

  template <class Call>
  auto locked(Call call) {
    const nb::gil_scoped_release no_gil;
    const std::lock_guard guard(mutex);
    return call(builder);
  }
};

using Statistics = std::tuple<std::uint64_t, std::uint64_t, std::int64_t,
                              std::array<std::uint64_t, 64>, std::array<std::int64_t, 4>>;
using Peaks = std::array<std::int64_t, 4>;
using Shape = std::tuple<std::array<std::uint32_t, 3>, std::array<std::uint32_t, 3>, std::uint32_t,
                         std::uint8_t, std::uint8_t, std::array<std::int64_t, 4>>;

std::vector<Binding> to_bindings(const IdArray& pairs) {
  if (pairs.size() % 2 != 0) throw nb::value_error("bindings are pairs (communicator, position)");
  std::vector<Binding> bindings(pairs.size() / 2);
  for (std::size_t i = 0; i < bindings.size(); ++i) {
    bindings[i] = {pairs.data()[2 * i], pairs.data()[2 * i + 1]};
  }
  return bindings;
}

RankOrigin to_origin(int origin) {
  if (origin < 0 || origin > 2) throw nb::value_error("origin is 0 (ran), 1 (checked) or 2");
  return static_cast<RankOrigin>(origin);
}

MemoryPeaks to_peaks(const Peaks& p) { return {p[0], p[1], p[2], p[3]}; }

KernelShape to_shape(const Shape& shape) {
  const auto& [grid, block, shared_bytes, dtype, transposes, gemm] = shape;
  KernelShape out;
  out.grid = grid;
  out.block = block;
  out.shared_bytes = shared_bytes;
  out.dtype = static_cast<DataType>(dtype);
  out.transposes = transposes;
  out.gemm = {gemm[0], gemm[1], gemm[2], gemm[3]};
  return out;
}

std::tuple<std::uint32_t, std::uint32_t, int, Peaks> rank_tuple(const Graph& graph,
                                                                std::uint32_t rank) {
  const RankView view = graph.rank(rank);
  const auto& p = view.peaks;
  return {view.program, graph.rank_class(view.program), static_cast<int>(view.origin),
          Peaks{p.requested_bytes, p.allocated_bytes, p.reserved_bytes, p.device_bytes}};
}

// As the operating system spells it: a path need not be UTF-8.
std::filesystem::path to_path(const nb::bytes& path) {
  return std::string(static_cast<const char*>(path.data()), path.size());
}

void bind_graph(nb::module_& m) {
  nb::class_<Graph>(m, "Graph")
      .def_static(
          "open",
          [](const nb::bytes& path) {
            const std::filesystem::path file = to_path(path);
            const nb::gil_scoped_release no_gil;
            return Graph::open(file);
          },
          nb::arg("path"))
      .def_static(
          "from_bytes",
          [](nb::bytes bytes) {
            const auto* begin = static_cast<const std::byte*>(bytes.data());
            std::vector<std::byte> copy(begin, begin + bytes.size());
            const nb::gil_scoped_release no_gil;
            return Graph::from_bytes(std::move(copy));
          },
          nb::arg("bytes"))
      .def(
          "save",
          [](const Graph& g, const nb::bytes& path) {
            const std::filesystem::path file = to_path(path);
            const nb::gil_scoped_release no_gil;
            g.save(file);
          },
          nb::arg("path"))
      .def("to_bytes", [](const Graph& g) { return nb::bytes(g.bytes().data(), g.bytes().size()); })
      .def_prop_ro("file_bytes", [](const Graph& g) { return g.bytes().size(); })
      .def_prop_ro("world_size", &Graph::world_size)
      .def_prop_ro("iterations", &Graph::iterations)
      .def_prop_ro("metadata", [](const Graph& g) { return text(g.metadata()); })
      .def_prop_ro("num_blocks", &Graph::num_blocks)
      .def_prop_ro("num_ops", &Graph::num_ops)
      .def_prop_ro("num_programs", &Graph::num_programs)
      .def_prop_ro("num_communicators", &Graph::num_communicators)
      .def_prop_ro("num_kernels", &Graph::num_kernels)
      .def_prop_ro("num_strings", &Graph::num_strings)
      .def("rank_class", &Graph::rank_class, nb::arg("program"))
      .def("has_rank", &Graph::has_rank, nb::arg("rank"))
      .def("ranks",
           [](nb::pointer_and_handle<Graph> g) { return borrowed_array(g.p->ranks(), g.h); })
      .def("rank", &rank_tuple, nb::arg("rank"))
      .def(
          "bindings",
          [](nb::pointer_and_handle<Graph> g, std::uint32_t rank) {
            const auto bindings = g.p->rank(rank).bindings;
            return borrowed_array(std::span(reinterpret_cast<const std::uint32_t*>(bindings.data()),
                                            bindings.size() * 2),
                                  g.h);
          },
          nb::arg("rank"))
      .def(
          "program_blocks",
          [](nb::pointer_and_handle<Graph> g, std::uint32_t id) {
            return borrowed_array(g.p->program(id).blocks, g.h);
          },
          nb::arg("program"))
      .def(
          "program_call_sites",
          [](nb::pointer_and_handle<Graph> g, std::uint32_t id) {
            return borrowed_array(g.p->program(id).call_sites, g.h);
          },
          nb::arg("program"))
      .def(
          "block_offsets",
          [](nb::pointer_and_handle<Graph> g) { return borrowed_array(g.p->block_offsets(), g.h); })
      .def(
          "read_blocks",
          [](const Graph& g, const IdArray& blocks) {
            std::vector<std::uint8_t> bytes;
            {
              const nb::gil_scoped_release no_gil;
              std::vector<Op> ops;
              for (const std::uint32_t block : ids_of(blocks)) g.read_block(block, ops);
              bytes.resize(ops.size() * sizeof(Op));
              if (!ops.empty()) std::memcpy(bytes.data(), ops.data(), bytes.size());
            }
            return owned_array(std::move(bytes));
          },
          nb::arg("blocks"))
      .def(
          "communicator_name",
          [](const Graph& g, std::uint32_t id) { return text(g.communicator(id).name); },
          nb::arg("id"))
      .def(
          "communicator_members",
          [](nb::pointer_and_handle<Graph> g, std::uint32_t id) {
            return borrowed_array(g.p->communicator(id).members, g.h);
          },
          nb::arg("id"))
      .def(
          "kernel_name", [](const Graph& g, std::uint32_t id) { return text(g.kernel_name(id)); },
          nb::arg("id"))
      .def(
          "kernel_shape",
          [](const Graph& g, std::uint32_t id) -> Shape {
            const KernelShape& s = g.kernel_shape(id);
            return {s.grid,         s.block,
                    s.shared_bytes, static_cast<std::uint8_t>(s.dtype),
                    s.transposes,   {s.gemm.m, s.gemm.n, s.gemm.k, s.gemm.batch}};
          },
          nb::arg("id"))
      .def(
          "string", [](const Graph& g, std::uint32_t id) { return text(g.string(id)); },
          nb::arg("id"))
      .def(
          "digest", [](const Graph& g) { return digest(g).hex(); },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "communication_digest", [](const Graph& g) { return communication_digest(g).hex(); },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "rank_digests",
          [](const Graph& g, bool communication_only) {
            const auto scope =
                communication_only ? DigestScope::communication : DigestScope::everything;
            std::vector<std::string> hashes;
            for (const Hash128& hash : rank_digests(g, scope)) hashes.push_back(hash.hex());
            return hashes;
          },
          nb::arg("communication_only"), nb::call_guard<nb::gil_scoped_release>())
      .def(
          "program_statistics",
          [](const Graph& g, std::uint32_t program) -> Statistics {
            const ProgramStatistics s = program_statistics(g, program);
            return {s.ops, s.iterations, s.bytes_sent, s.by_kind, s.device_ns};
          },
          nb::arg("program"), nb::call_guard<nb::gil_scoped_release>());
  m.def("op_kind_name", [](std::uint8_t kind) { return text(name(static_cast<OpKind>(kind))); });
}

void bind_builder(nb::module_& m) {
  nb::class_<SharedBuilder>(m, "GraphBuilder")
      .def(nb::init<std::uint32_t>(), nb::arg("world_size"))
      .def(
          "string",
          [](SharedBuilder& b, std::string_view s) {
            return b.locked([&](GraphBuilder& builder) { return builder.string(s); });
          },
          nb::arg("text"))
      .def(
          "kernel",
          [](SharedBuilder& b, std::string_view name, const Shape& shape) {
            return b.locked(
                [&](GraphBuilder& builder) { return builder.kernel(name, to_shape(shape)); });
          },
          nb::arg("name"), nb::arg("shape"))
      .def(
          "communicator",
          [](SharedBuilder& b, std::string_view name, const IdArray& members) {
            return b.locked(
                [&](GraphBuilder& builder) { return builder.communicator(name, ids_of(members)); });
          },
          nb::arg("name"), nb::arg("members"))
      .def(
          "set_rank",
          [](SharedBuilder& b, std::uint32_t rank, const ByteArray& ops, const IdArray& bindings,
             const IdArray& call_sites, const Peaks& peaks) {
            const Records<Op> op_records(ops);
            const std::vector<Binding> slots = to_bindings(bindings);
            b.locked([&](GraphBuilder& builder) {
              builder.set_rank(rank, op_records.view(), slots, ids_of(call_sites), to_peaks(peaks));
            });
          },
          nb::arg("rank"), nb::arg("ops"), nb::arg("bindings"), nb::arg("call_sites"),
          nb::arg("peaks"))
      .def(
          "merge",
          [](SharedBuilder& b, const Graph& graph, int origin) {
            b.locked([&](GraphBuilder& builder) { builder.merge(graph, to_origin(origin)); });
          },
          nb::arg("graph"), nb::arg("origin"))
      .def(
          "infer",
          [](SharedBuilder& b, std::uint32_t rank, std::uint32_t like, const IdArray& bindings,
             const Peaks& peaks) {
            const std::vector<Binding> slots = to_bindings(bindings);
            b.locked(
                [&](GraphBuilder& builder) { builder.infer(rank, like, slots, to_peaks(peaks)); });
          },
          nb::arg("rank"), nb::arg("like"), nb::arg("bindings"), nb::arg("peaks"))
      .def(
          "infer_program",
          [](SharedBuilder& b, std::uint32_t rank, const IdArray& blocks, const IdArray& call_sites,
             const IdArray& bindings, const Peaks& peaks) {
            const std::vector<Binding> slots = to_bindings(bindings);
            b.locked([&](GraphBuilder& builder) {
              builder.infer_program(rank, ids_of(blocks), ids_of(call_sites), slots,
                                    to_peaks(peaks));
            });
          },
          nb::arg("rank"), nb::arg("blocks"), nb::arg("call_sites"), nb::arg("bindings"),
          nb::arg("peaks"))
      .def(
          "program_of",
          [](SharedBuilder& b, std::uint32_t rank) {
            return owned_array(
                b.locked([&](GraphBuilder& builder) { return builder.program_of(rank); }));
          },
          nb::arg("rank"))
      .def(
          "finish",
          [](SharedBuilder& b, std::string_view metadata) {
            return b.locked([&](GraphBuilder& builder) { return builder.finish(metadata); });
          },
          nb::arg("metadata"));
}

}  // namespace

void init_graph(nb::module_& m) {
  bind_graph(m);
  bind_builder(m);
}

}  // namespace prism::bind
