#include "graph/recorder.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "graph_samples.h"

using namespace prism;
using namespace prism::samples;

namespace {

Op all_reduce(std::uint32_t slot, std::int64_t bytes) {
  return collective(OpKind::all_reduce, slot, bytes);
}

const std::vector<std::uint32_t> everyone{0, 1, 2, 3};

}  // namespace

TEST_CASE("repeated blocks are stored once and expand to what was appended") {
  Recorder recorder(1, 4);
  const std::uint32_t gemm = recorder.kernel("gemm", {});
  const std::uint32_t slot = recorder.add_communicator("world", 4, 1);
  recorder.set_members(slot, everyone);
  std::vector<Op> appended;
  const auto append = [&](const Op& op) {
    recorder.append(op);
    appended.push_back(op);
  };
  for (int i = 0; i < 10; ++i) {
    append(kernel(gemm, 5));
    append(all_reduce(slot, i == 7 ? 64 : 8));
  }
  append(kernel(gemm, 3));
  CHECK(recorder.num_ops() == 21);
  CHECK(recorder.num_communication_ops() == 10);

  const Graph graph = reread(recorder.finish());
  CHECK(graph.num_blocks() == 3);
  CHECK(graph.num_ops() == 5);
  CHECK(graph.program(0).blocks.size() == 11);
  CHECK(expanded(graph, 1) == appended);
}

TEST_CASE("a grouped launch stays in one block") {
  Recorder recorder(0, 4);
  const std::uint32_t slot = recorder.add_communicator("world", 4, 0);
  recorder.set_members(slot, everyone);
  Op part = all_reduce(slot, 8);
  part.flags = Op::group_continues;
  recorder.append(part);
  recorder.append(part);
  part.flags = 0;
  recorder.append(part);
  const Graph graph = reread(recorder.finish());
  CHECK(graph.num_blocks() == 1);
  CHECK(graph.block_size(0) == 3);
}

TEST_CASE("slots without ops are dropped, the others numbered by first use") {
  Recorder recorder(2, 4);
  recorder.add_communicator("never", 2, 0);  // members unknown, and not needed
  const std::uint32_t late = recorder.add_communicator("late", 2, 1);
  const std::uint32_t early = recorder.add_communicator("early", 4, 2);
  recorder.set_members(late, std::vector<std::uint32_t>{0, 2});
  recorder.set_members(early, everyone);
  recorder.append(all_reduce(early, 8));
  recorder.append(all_reduce(late, 8));
  const Graph graph = reread(recorder.finish());
  REQUIRE(graph.rank(2).bindings.size() == 2);
  CHECK(graph.communicator(graph.rank(2).bindings[0].communicator).name == "early");
  CHECK(graph.rank(2).bindings[0].position == 2);
  CHECK(graph.communicator(graph.rank(2).bindings[1].communicator).name == "late");
  CHECK(expanded(graph, 2)[0].ref == 0);
  CHECK(expanded(graph, 2)[1].ref == 1);
}

TEST_CASE("call sites, peaks, marks and metadata reach the graph") {
  Recorder recorder(3, 4);
  const std::uint32_t slot = recorder.add_communicator("world", 4, 3);
  recorder.set_members(slot, everyone);
  recorder.append(all_reduce(slot, 8));
  Op mark;
  mark.kind = OpKind::mark;
  mark.ref = recorder.string("step");
  recorder.append(mark);
  recorder.append(all_reduce(slot, 8));
  CHECK(recorder.num_iterations() == 1);
  recorder.set_call_sites(std::vector<std::uint32_t>{recorder.string("train.py:7")});
  recorder.set_peaks({1, 2, 3, 4});
  const Graph graph = reread(recorder.finish(R"({"device":"h100"})"));
  CHECK(graph.iterations() == 1);
  CHECK(graph.metadata() == R"({"device":"h100"})");
  CHECK(graph.rank(3).peaks == MemoryPeaks{1, 2, 3, 4});
  CHECK(graph.rank(3).origin == RankOrigin::ran);
  const auto sites = graph.program(0).call_sites;
  REQUIRE(sites.size() == 2);
  CHECK(graph.string(sites[0]) == "train.py:7");
  CHECK(graph.string(sites[1]).empty());
  CHECK(graph.string(expanded(graph, 3)[1].ref) == "step");
  CHECK_FALSE(graph.has_rank(0));
}

TEST_CASE("a finished recorder is empty again") {
  Recorder recorder(0, 1);
  recorder.append(kernel(recorder.kernel("k", {}), 1));
  CHECK(recorder.finish().num_ops() == 1);
  CHECK(recorder.num_ops() == 0);
  const Graph empty = reread(recorder.finish());
  CHECK(empty.num_ops() == 0);
  CHECK(empty.num_kernels() == 0);
  CHECK(empty.program(0).blocks.empty());
}

TEST_CASE("what cannot be recorded is named") {
  CHECK_THROWS_AS(Recorder(4, 4), GraphError);
  Recorder recorder(0, 4);
  CHECK_THROWS_AS(recorder.add_communicator("c", 2, 2), GraphError);
  const std::uint32_t slot = recorder.add_communicator("c", 2, 1);
  CHECK_THROWS_AS(recorder.set_members(slot, everyone), GraphError);
  CHECK_THROWS_AS(recorder.set_members(slot, std::vector<std::uint32_t>{0, 1}), GraphError);
  CHECK_THROWS_AS(recorder.set_call_sites(std::vector<std::uint32_t>{9}), GraphError);

  SUBCASE("a communicator without members") {
    recorder.append(all_reduce(slot, 1));
    CHECK_THROWS_WITH_AS(recorder.finish(),
                         "rank 0: communicator 'c' is used but its members were never set",
                         GraphError);
  }
  SUBCASE("a slot that does not exist") {
    recorder.append(all_reduce(7, 1));
    CHECK_THROWS_WITH_AS(recorder.finish(),
                         "rank 0: all_reduce: communicator slot 7 found, expected below 1",
                         GraphError);
  }
  SUBCASE("a kernel that does not exist") {
    recorder.append(kernel(5, 1));
    CHECK_THROWS_WITH_AS(recorder.finish(),
                         "rank 0: op 0: kernel: kernel id 5 found, expected below 0", GraphError);
  }
  SUBCASE("time that runs backwards") {
    recorder.append(kernel(recorder.kernel("k", {}), -1));
    CHECK_THROWS_AS(recorder.finish(), GraphError);
  }
}

TEST_CASE("a long block ends at a host synchronisation, and loops that read back repeat") {
  Recorder recorder(0, 1);
  const std::uint32_t slot = recorder.add_communicator("world", 1, 0);
  const std::vector<std::uint32_t> members{0};
  recorder.set_members(slot, members);
  const auto append = [&](OpKind kind, int count = 1) {
    Op op;
    op.kind = kind;
    if (is_communication(kind)) op.ref = slot;
    for (int i = 0; i < count; ++i) recorder.append(op);
  };
  const std::uint32_t site = recorder.string("gather.py:7");
  append(OpKind::host_gap, 3);
  for (int i = 0; i < 1000; ++i) {
    append(OpKind::copy);
    append(OpKind::stream_sync);
  }
  append(OpKind::all_reduce);
  recorder.set_call_sites(std::vector<std::uint32_t>{site});
  const Graph graph = recorder.finish();
  const ProgramView program = graph.program(0);
  // 257 ops to the first synchronisation of a long block, then 256 at a time.
  CHECK(program.blocks.size() == 8);
  CHECK(graph.num_blocks() == 3);
  CHECK(graph.block_size(program.blocks[0]) == 257);
  CHECK(graph.block_size(program.blocks[1]) == long_block_ops);
  CHECK(program.blocks[1] == program.blocks[6]);
  for (std::size_t i = 0; i + 1 < 8; ++i) CHECK(program.call_sites[i] == 0);
  CHECK(graph.string(program.call_sites[7]) == "gather.py:7");
}
