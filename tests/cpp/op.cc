#include "graph/op.h"

#include <doctest/doctest.h>

#include <set>
#include <string>

using namespace prism;

TEST_CASE("every op kind has a name of its own") {
  std::set<std::string> seen;
  int kinds = 0;
  for (int i = 0; i < 256; ++i) {
    const auto text = name(static_cast<OpKind>(i));
    if (text == "unknown") continue;
    ++kinds;
    seen.emplace(text);
  }
  CHECK(kinds == 27);
  CHECK(seen.size() == 27);
}

TEST_CASE("only the last part of a grouped launch closes a block") {
  Op op;
  op.kind = OpKind::send;
  CHECK(closes_block(op));
  op.flags |= Op::group_continues;
  CHECK_FALSE(closes_block(op));
  op.kind = OpKind::kernel;
  op.flags = 0;
  CHECK_FALSE(closes_block(op));
}
