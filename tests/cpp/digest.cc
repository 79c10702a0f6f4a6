#include "graph/digest.h"

#include <doctest/doctest.h>

#include <functional>
#include <vector>

#include "graph/builder.h"
#include "graph_samples.h"

using namespace prism;
using namespace prism::samples;

namespace {

struct Options {
  bool other_numbering = false;  // strings, kernels, slots, programs
  std::function<void(std::vector<Op>&)> change = [](std::vector<Op>&) {};
};

// Two ranks on a world and a single-rank communicator each.
Graph sample(const Options& options) {
  GraphBuilder builder(2);
  const bool other = options.other_numbering;
  if (other) {
    builder.string("noise");
    builder.kernel("noise", {});
  }
  const std::uint32_t world =
      builder.communicator(other ? "renamed" : "world", std::vector<std::uint32_t>{0, 1});
  const std::uint32_t k1 = builder.kernel(other ? "b" : "a", {});
  const std::uint32_t k2 = builder.kernel(other ? "a" : "b", {});
  const std::uint32_t a = other ? k2 : k1, b = other ? k1 : k2;
  for (std::uint32_t i = 0; i < 2; ++i) {
    const std::uint32_t rank = other ? 1 - i : i;
    const std::uint32_t self = builder.communicator("self", std::vector<std::uint32_t>{rank});
    const std::uint32_t w = other ? 1 : 0, s = other ? 0 : 1;
    std::vector<Op> ops{kernel(a, 10 + rank),
                        collective(OpKind::all_reduce, w, 64),
                        kernel(b, 5),
                        collective(OpKind::all_gather, s, 32),
                        part(OpKind::send, w, 1, true),
                        part(OpKind::recv, w, 1, false),
                        mark(MarkKind::phase, builder.string("end"))};
    if (rank == 0) options.change(ops);
    std::vector<Binding> slots{{world, rank}, {self, 0}};
    if (other) std::swap(slots[0], slots[1]);
    const std::uint32_t site[] = {builder.string(other ? "x.py:1" : "y.py:2")};
    builder.set_rank(rank, ops, slots, site, {other, other, other, other});
  }
  return builder.finish(other ? "{}" : R"({"a":1})");
}

}  // namespace

TEST_CASE("numbering, names of communicators, call sites and peaks do not count") {
  const Graph one = sample({});
  const Graph two = sample({.other_numbering = true});
  CHECK(digest(one) == digest(two));
  CHECK(communication_digest(one) == communication_digest(two));
  CHECK(digest(one) != communication_digest(one));
}

TEST_CASE("call sites that ranks of one class do not share do not count") {
  const auto sites = [](const char* last) {
    GraphBuilder builder(2);
    const std::vector<std::uint32_t> both{0, 1};
    const std::uint32_t world = builder.communicator("world", both);
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      const std::uint32_t site[] = {builder.string(rank == 0 ? "x.py:1" : last)};
      builder.set_rank(rank, std::vector<Op>{collective(OpKind::all_reduce, 0, 64)},
                       std::vector<Binding>{{world, rank}}, site);
    }
    return builder.finish();
  };
  const Graph same = sites("x.py:1"), other = sites("y.py:2");
  REQUIRE(same.num_programs() == 1);
  REQUIRE(other.num_programs() == 2);
  CHECK(digest(same) == digest(other));
  CHECK(communication_digest(same) == communication_digest(other));
  CHECK(rank_digests(same, DigestScope::everything) ==
        rank_digests(other, DigestScope::everything));
}

TEST_CASE("provenance does not count, every other field does") {
  const Graph plain = sample({});
  const auto compare = [&](std::function<void(std::vector<Op>&)> change, bool same,
                           bool same_communication) {
    const Graph changed = sample({.change = std::move(change)});
    CHECK((digest(changed) == digest(plain)) == same);
    CHECK((communication_digest(changed) == communication_digest(plain)) == same_communication);
    const auto before = rank_digests(plain, DigestScope::everything);
    const auto after = rank_digests(changed, DigestScope::everything);
    CHECK((before[0] == after[0]) == same);
    CHECK(before[1] == after[1]);
  };
  using Ops = std::vector<Op>;
  compare([](Ops& ops) { ops[0].flags = static_cast<std::uint8_t>(Provenance::measured); }, true,
          true);
  compare([](Ops& ops) { ops[0].duration_ns += 1; }, false, true);
  compare([](Ops& ops) { ops[0].host_ns += 1; }, false, true);
  compare([](Ops& ops) { ops[0].stream = 1; }, false, true);
  compare([](Ops& ops) { ops[0].ref = ops[2].ref; }, false, true);
  compare([](Ops& ops) { ops[6].ref = 0; }, false, true);
  compare([](Ops& ops) { ops.erase(ops.begin() + 2); }, false, true);
  compare([](Ops& ops) { ops[1].duration_ns = 7; }, false, true);
  compare([](Ops& ops) { ops[1].stream = 3; }, false, true);
  compare([](Ops& ops) { ops[1].flags |= Op::blocking; }, false, true);
  compare([](Ops& ops) { ops[1].bytes += 1; }, false, false);
  compare([](Ops& ops) { ops[1].dtype = DataType::float32; }, false, false);
  compare([](Ops& ops) { ops[1].detail = static_cast<std::uint8_t>(Reduction::max); }, false,
          false);
  compare([](Ops& ops) { ops[1].kind = OpKind::all_to_all; }, false, false);
  compare([](Ops& ops) { ops[4].tag = 3; }, false, false);
  compare([](Ops& ops) { ops[4].peer = 0; }, false, false);
  compare([](Ops& ops) { ops[4].flags = 0; }, false, false);
  compare([](Ops& ops) { std::swap(ops[1].ref, ops[3].ref); }, false, false);
  compare([](Ops& ops) { ops.pop_back(); }, false, true);
}

TEST_CASE("communicators of one member list are one, in a grouped launch too") {
  const auto build = [](bool two_names) {
    GraphBuilder builder(2);
    const std::vector<std::uint32_t> both{0, 1};
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      const std::uint32_t one = builder.communicator("dp", both);
      const std::uint32_t two = two_names ? builder.communicator("dp_cp", both) : one;
      std::vector<Binding> slots{{one, rank}};
      if (two_names) slots.push_back({two, rank});
      const std::uint32_t second = two_names ? 1 : 0;
      const std::vector<Op> ops{
          collective(OpKind::all_reduce, 0, 8), collective(OpKind::all_reduce, second, 8),
          part(OpKind::send, 0, 1, true), part(OpKind::recv, second, 1, false)};
      builder.set_rank(rank, ops, slots);
    }
    return builder.finish();
  };
  CHECK(digest(build(true)) == digest(build(false)));
  CHECK(communication_digest(build(true)) == communication_digest(build(false)));
}

TEST_CASE("world size, missing ranks and members count") {
  const auto build = [](std::uint32_t world, std::uint32_t ranks, bool swapped) {
    GraphBuilder builder(world);
    const std::vector<std::uint32_t> members =
        swapped ? std::vector<std::uint32_t>{1, 0} : std::vector<std::uint32_t>{0, 1};
    const std::uint32_t id = builder.communicator("c", members);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const std::vector<Op> ops{collective(OpKind::all_reduce, 0, 8)};
      builder.set_rank(rank, ops, std::vector<Binding>{{id, swapped ? 1 - rank : rank}});
    }
    return communication_digest(builder.finish());
  };
  const Hash128 base = build(2, 2, false);
  CHECK(base == build(2, 2, false));
  CHECK(base != build(3, 2, false));
  CHECK(base != build(2, 1, false));
  CHECK(base != build(2, 2, true));
}
