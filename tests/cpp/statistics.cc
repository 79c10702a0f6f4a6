#include "graph/statistics.h"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/op_check.h"
#include "graph_samples.h"

using namespace prism;
using namespace prism::samples;

TEST_CASE("statistics of a program count its blocks as often as they run") {
  const Graph graph = ring();
  const ProgramStatistics odd = program_statistics(graph, graph.rank(1).program);
  CHECK(odd.ops == 11);
  CHECK(odd.iterations == 2);
  CHECK(odd.count(OpKind::kernel) == 3);
  CHECK(odd.count(OpKind::send) == 2);
  CHECK(odd.count(OpKind::recv) == 2);
  CHECK(odd.count(OpKind::all_reduce) == 2);
  CHECK(odd.bytes_sent == 2 * 1024 + 2 * 8);
  CHECK(odd.device_ns[static_cast<std::size_t>(Provenance::model)] == 11 + 11 + 1);
  CHECK(odd.device_ns[static_cast<std::size_t>(Provenance::unknown)] == 0);
  CHECK_THROWS_AS(program_statistics(graph, 9), GraphError);
}

TEST_CASE("sums that leave int64 stop at its end") {
  GraphBuilder builder(1);
  const std::uint32_t self = builder.communicator("self", std::vector<std::uint32_t>{0});
  Op op = collective(OpKind::all_reduce, 0, max_value);
  op.duration_ns = max_value;
  const std::vector<Op> ops(2000, op);
  builder.set_rank(0, ops, std::vector<Binding>{{self, 0}});
  const Graph graph = builder.finish();
  CHECK(graph.num_blocks() == 1);
  const ProgramStatistics sums = program_statistics(graph, 0);
  CHECK(sums.bytes_sent == std::numeric_limits<std::int64_t>::max());
  CHECK(sums.device_ns[0] == std::numeric_limits<std::int64_t>::max());
}
