#include "graph/buffer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

using namespace prism;

TEST_CASE("a buffer holds what was put into it, in order") {
  Buffer<std::uint32_t> buffer;
  std::vector<std::uint32_t> expected;
  for (std::uint32_t i = 0; i < 1000; ++i) {
    buffer.push(i);
    expected.push_back(i);
    if (i % 7 == 0) {
      buffer.append(expected);
      const std::vector<std::uint32_t> copy = expected;
      expected.insert(expected.end(), copy.begin(), copy.end());
      const std::size_t half = expected.size() / 2;
      if (half > 4096) {
        buffer.truncate(half);
        expected.resize(half);
      }
    }
  }
  CHECK(std::ranges::equal(buffer.view(), expected));
  CHECK(buffer.raw().size() == expected.size() * 4);
}

TEST_CASE("pushing an element of the buffer itself survives its growth") {
  Buffer<std::uint64_t> buffer;
  buffer.push(1);
  for (int i = 0; i < 10000; ++i) buffer.push(buffer.back() + 1);
  CHECK(buffer.back() == 10001);
}

TEST_CASE("moving leaves nothing behind and frees what was held") {
  Buffer<int> one;
  one.push(1);
  Buffer<int> two = std::move(one);
  CHECK(two.size() == 1);
  Buffer<int> three;
  three.push(3);
  three.push(4);
  three = std::move(two);
  CHECK(three.size() == 1);
  CHECK(three[0] == 1);
  three.release();
  CHECK(three.empty());
  three.push(9);
  CHECK(three.back() == 9);
}
