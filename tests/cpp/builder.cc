#include "graph/builder.h"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "graph/digest.h"
#include "graph/recorder.h"
#include "graph_samples.h"

using namespace prism;
using namespace prism::samples;

namespace {

const std::vector<std::uint32_t> pair{0, 1};

// Two ranks that send to each other; `own` makes their programs differ.
std::vector<Op> exchange(GraphBuilder& builder, std::int64_t own) {
  return {kernel(builder.kernel("k", {}), own), part(OpKind::send, 0, 1, true),
          part(OpKind::recv, 0, 1, false)};
}

}  // namespace

TEST_CASE("ranks with equal ops share one program and its blocks") {
  const Graph graph = reread(ring());
  CHECK(graph.num_programs() == 2);  // the kernel's duration tells even from odd
  CHECK(graph.rank(0).program == graph.rank(2).program);
  CHECK(graph.rank(0).program != graph.rank(1).program);
  CHECK(graph.iterations() == 2);
  CHECK(graph.num_communicators() == 3);
  CHECK(graph.program(0).blocks.size() == 5);
  CHECK(graph.rank(3).peaks == MemoryPeaks{1, 2, 3, 3});
  const auto members = graph.communicator(graph.rank(2).bindings[1].communicator).members;
  CHECK(std::vector(members.begin(), members.end()) == std::vector<std::uint32_t>{3, 2});
  CHECK(graph.rank(2).bindings[1].position == 1);
}

TEST_CASE("the number of stored blocks is that of different contents") {
  GraphBuilder builder(64);
  const std::uint32_t k = builder.kernel("k", {});
  std::set<std::vector<std::int64_t>> contents;
  std::vector<std::vector<Op>> given;
  std::uint64_t state = 1;
  for (std::uint32_t rank = 0; rank < 64; ++rank) {
    std::vector<Op> ops;
    for (int block = 0; block < 40; ++block) {
      std::vector<std::int64_t> durations;
      state = state * 6364136223846793005U + 1442695040888963407U;
      for (std::uint64_t n = 0; n < 1 + (state >> 33) % 3; ++n) {
        durations.push_back(static_cast<std::int64_t>((state >> (40 + 4 * n)) % 4));
      }
      for (const std::int64_t duration : durations) ops.push_back(kernel(k, duration));
      ops.push_back(collective(OpKind::all_gather, 0, 8));
      contents.insert(durations);
    }
    const std::uint32_t own[] = {rank};
    builder.set_rank(rank, ops, std::vector<Binding>{{builder.communicator("self", own), 0}});
    given.push_back(std::move(ops));
  }
  const Graph graph = reread(builder.finish());
  CHECK(graph.num_blocks() == contents.size());
  for (std::uint32_t rank = 0; rank < 64; ++rank) CHECK(expanded(graph, rank) == given[rank]);
}

TEST_CASE("merging recorded ranks gives what setting them gives") {
  const Graph whole = ring();
  GraphBuilder builder(4);
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    Recorder recorder(rank, 4);
    // Other ids than in the whole graph: kernels and strings in another order.
    recorder.kernel("unused", {});
    recorder.string("unused too");
    const RankView view = whole.rank(rank);
    for (const Binding& binding : view.bindings) {
      const auto [name, members] = whole.communicator(binding.communicator);
      const std::uint32_t slot = recorder.add_communicator(
          name, static_cast<std::uint32_t>(members.size()), binding.position);
      recorder.set_members(slot, members);
    }
    for (Op op : expanded(whole, rank)) {
      if (op.kind == OpKind::kernel) {
        op.ref = recorder.kernel(whole.kernel_name(op.ref), whole.kernel_shape(op.ref));
      }
      if (op.kind == OpKind::mark) op.ref = recorder.string(whole.string(op.ref));
      recorder.append(op);
    }
    recorder.set_peaks(view.peaks);
    builder.merge(recorder.finish(), rank == 2 ? RankOrigin::checked : RankOrigin::ran);
  }
  const Graph merged = reread(builder.finish());
  CHECK(digest(merged) == digest(whole));
  CHECK(communication_digest(merged) == communication_digest(whole));
  CHECK(merged.num_programs() == whole.num_programs());
  CHECK(merged.num_blocks() == whole.num_blocks());
  CHECK(merged.num_communicators() == whole.num_communicators());
  CHECK(merged.num_kernels() == 1);  // names that no op uses are left behind
  CHECK(merged.iterations() == 2);
  CHECK(merged.rank(2).origin == RankOrigin::checked);
  CHECK(merged.rank(3).peaks == whole.rank(3).peaks);
}

TEST_CASE("an inferred rank runs the program of its like on its own communicators") {
  GraphBuilder builder(4);
  const std::uint32_t first = builder.communicator("pair", pair);
  const std::uint32_t second = builder.communicator("pair", std::vector<std::uint32_t>{2, 3});
  const std::uint32_t three = builder.communicator("three", std::vector<std::uint32_t>{0, 1, 2});
  builder.set_rank(0, exchange(builder, 5), std::vector<Binding>{{first, 0}});
  builder.infer(2, 0, std::vector<Binding>{{second, 0}}, {9, 9, 9, 9});
  builder.infer_program(1, builder.program_of(0), {}, std::vector<Binding>{{three, 1}}, {});
  CHECK_THROWS_AS(builder.infer(3, 0, {}, {}), GraphError);  // no slot
  CHECK_THROWS_AS(builder.infer(3, 0, std::vector<Binding>{{first, 0}}, {}), GraphError);  // not in
  CHECK_THROWS_AS(builder.infer(2, 0, std::vector<Binding>{{second, 0}}, {}), GraphError);  // twice
  CHECK_THROWS_AS(builder.infer(3, 1 + 2, std::vector<Binding>{{second, 1}}, {}), GraphError);
  const Graph graph = reread(builder.finish());
  CHECK(graph.num_programs() == 1);
  CHECK(graph.rank(2).origin == RankOrigin::inferred);
  CHECK(graph.rank(2).peaks.device_bytes == 9);
  CHECK(expanded(graph, 2) == expanded(graph, 0));
  CHECK(graph.ranks().size() == 3);
  CHECK_FALSE(graph.has_rank(3));
  CHECK_THROWS_AS(graph.rank(3), GraphError);
}

TEST_CASE("ranks of one class keep their own call sites") {
  // By rank; rank 3 has other ops, rank 5 no call site. An unset site is no site.
  const std::vector<std::string> given{"here", "there", "here", "there", "there", ""};
  GraphBuilder builder(8), merged(8);
  const auto self = [](GraphBuilder& into, std::uint32_t rank) {
    const std::uint32_t next = rank ^ 1U;
    return std::vector<Binding>{
        {into.communicator("pair", std::vector<std::uint32_t>{rank, next}), 0}};
  };
  for (std::uint32_t rank = 0; rank < given.size(); ++rank) {
    const std::vector<Op> ops = exchange(builder, rank == 3 ? 6 : 5);
    std::vector<std::uint32_t> sites;
    if (!given[rank].empty()) sites.push_back(builder.string(given[rank]));
    builder.set_rank(rank, ops, self(builder, rank), sites);
    GraphBuilder alone(8);
    alone.string("noise");  // ids of strings differ from graph to graph
    if (!sites.empty()) sites[0] = alone.string(given[rank]);
    alone.set_rank(rank, exchange(alone, rank == 3 ? 6 : 5), self(alone, rank), sites);
    merged.merge(alone.finish(), RankOrigin::ran);
  }
  builder.infer(6, 1, self(builder, 6), {});
  builder.infer_program(7, builder.program_of(0), {}, self(builder, 7), {});
  merged.infer(6, 1, self(merged, 6), {});
  merged.infer_program(7, merged.program_of(0), {}, self(merged, 7), {});

  const auto check = [&](const Graph& graph) {
    CHECK(graph.num_blocks() == 2);
    CHECK(graph.num_programs() == 4);
    std::set<std::uint32_t> classes;
    for (const std::uint32_t rank : graph.ranks()) {
      const std::uint32_t program = graph.rank(rank).program;
      const std::string& site = rank == 6 ? given[1] : rank == 7 ? given[5] : given[rank];
      CHECK(graph.string(graph.program(program).call_sites[0]) == site);
      classes.insert(graph.rank_class(program));
      CHECK(graph.rank_class(program) == graph.rank(rank == 3 ? 3 : 0).program);
      CHECK(graph.rank_class(program) <= program);
    }
    CHECK(classes.size() == 2);
    CHECK_THROWS_AS(graph.rank_class(4), GraphError);
  };
  const Graph whole = builder.finish(), put_together = merged.finish();
  check(whole);
  check(put_together);
  check(reread(whole));
  CHECK(digest(whole) == digest(put_together));
  CHECK(copy_of(whole) == copy_of(put_together));
}

TEST_CASE("what does not fit is named and changes nothing") {
  CHECK_THROWS_AS(GraphBuilder(0), GraphError);
  CHECK_THROWS_AS(GraphBuilder(0xffffffffU), GraphError);
  GraphBuilder builder(2);
  const std::uint32_t world = builder.communicator("world", pair);
  CHECK(builder.communicator("world", pair) == world);
  CHECK(builder.communicator("other", pair) != world);
  CHECK_THROWS_AS(builder.communicator("c", {}), GraphError);
  CHECK_THROWS_AS(builder.communicator("c", std::vector<std::uint32_t>{0, 2}), GraphError);
  CHECK_THROWS_AS(builder.communicator("c", std::vector<std::uint32_t>{1, 0, 1}), GraphError);
  const std::vector<Binding> slots{{world, 0}};
  const auto fails = [&](std::vector<Op> ops, const char* message) {
    CHECK_THROWS_WITH_AS(builder.set_rank(0, ops, slots), message, GraphError);
  };
  fails({kernel(3, 1)}, "rank 0: op 0: kernel: kernel id 3 found, expected below 0");
  fails({collective(OpKind::all_reduce, 1, 1)},
        "rank 0: op 0: all_reduce on communicator slot 1, bindings for 1 slots given");
  fails({part(OpKind::send, 0, 2, false)},
        "rank 0: slot 0: an op names position or relative peer 2 of communicator 'world', which "
        "has 2 members");
  fails({part(OpKind::send, 0, 1, true)},
        "rank 0: op 0: is followed by nothing, expected the rest of its grouped launch");
  fails({part(OpKind::send, 0, 1, true), mark(MarkKind::phase, 0)},
        "rank 0: op 1: mark inside a grouped launch, expected a communication op");
  Op odd;
  odd.kind = static_cast<OpKind>(200);
  fails({odd}, "rank 0: op 0: kind 200 found, none of that number");
  odd = kernel(0, 1);
  odd.kind = OpKind::copy;
  odd.bytes = -8;
  fails({odd}, "rank 0: op 0: copy: bytes -8 found, expected 0 to 9007199254740992");
  CHECK_THROWS_AS(builder.set_rank(2, {}, {}), GraphError);
  CHECK_THROWS_AS(builder.set_rank(0, {}, std::vector<Binding>{{world, 1}}), GraphError);
  CHECK_THROWS_AS(builder.set_rank(0, {}, std::vector<Binding>{{9, 0}}), GraphError);
  CHECK_THROWS_WITH_AS(
      builder.set_rank(0, {}, std::vector<Binding>{{world, 0}, {1, 0}, {world, 0}}),
      "rank 0: slots 0 and 2 are both of communicator 'world', expected one slot "
      "for each",
      GraphError);
  CHECK_THROWS_AS(builder.program_of(0), GraphError);
  CHECK_THROWS_AS(builder.merge(ring(), RankOrigin::ran), GraphError);

  builder.set_rank(0, {}, slots);
  CHECK_THROWS_AS(builder.set_rank(0, {}, slots), GraphError);
  const std::vector<std::uint32_t> unknown{4};
  CHECK_THROWS_AS(builder.infer_program(1, unknown, {}, {}, {}), GraphError);
  const Graph graph = reread(builder.finish());
  CHECK(graph.ranks().size() == 1);
  CHECK(graph.num_ops() == 0);
}

TEST_CASE("a block without communication may only end an inferred program") {
  GraphBuilder builder(2);
  const std::vector<Op> tail{kernel(builder.kernel("k", {}), 1)};
  builder.set_rank(0, tail, {});
  const std::vector<std::uint32_t> twice{0, 0};
  CHECK_THROWS_AS(builder.infer_program(1, twice, {}, {}, {}), GraphError);
}
